// Health: each problem with the command that fixes it, this server's metrics of the last hour, and the output of `svc doctor`.
import type { ConsoleSample } from "@svc/contract/console.ts";
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Chart, type Line } from "./chart.tsx";
import { confirm } from "./dialog.tsx";
import { bytes, count, duration, eventWords, latency, percent, rate } from "./format.ts";
import { Ago, Command, Empty, Problem, Scroll } from "./parts.tsx";
import { to } from "./router.ts";
import { events, version } from "./rows.ts";
import { call, isReadOnly, messageOf, request, signed } from "./session.ts";
import { say } from "./toasts.tsx";

const AGAIN_MS = 10_000;
const LOW_DISK = 0.05;
const LOW_MEMORY = 0.05;
const RECENT = 40;

type Check = { readonly name: string; readonly works: boolean; readonly says: string; readonly follows: string; readonly fix: string };
type Driver = {
  readonly runtime: string;
  readonly usable: { readonly works: boolean; readonly says: string; readonly fix?: string };
  readonly isolation: string;
};
type Diagnosis = { readonly checks: readonly Check[]; readonly drivers: readonly Driver[]; readonly canRun: boolean };
type Trouble = { readonly text: string; readonly command: string };

/** Returns the problems in the newest sample that need a person's attention. */
function troublesOf(samples: readonly ConsoleSample[]): Trouble[] {
  const newest = samples.at(-1);
  if (newest === undefined) return [];
  const found: Trouble[] = [];
  const { diskFree, diskTotal, memoryFree, memoryTotal, waiting, errors } = newest;
  if (diskFree !== undefined && diskTotal !== undefined && diskFree < diskTotal * LOW_DISK)
    found.push({ text: `The disk of the home has ${bytes(diskFree)} left, ${percent(diskFree / diskTotal)}.`, command: "df -h; ./svc template list" });
  if (memoryFree !== undefined && memoryTotal !== undefined && memoryFree < memoryTotal * LOW_MEMORY)
    found.push({ text: `The machine has ${bytes(memoryFree)} of memory left.`, command: "./svc metrics --all" });
  if ((waiting ?? 0) > 0) found.push({ text: `${count(waiting ?? 0)} creates wait for a start.`, command: "./svc nodes list" });
  if ((errors ?? 0) > 0) found.push({ text: `${rate(errors)} requests a second fail with a fault of the server.`, command: "./svc doctor" });
  return found;
}

export function Health(): JSX.Element {
  void version.value;
  const [samples, setSamples] = useState<readonly ConsoleSample[]>([]);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    const read = () =>
      request<{ samples: ConsoleSample[] }>("ring").then(
        (answer) => {
          setSamples(answer.samples);
          setProblem("");
        },
        (error: unknown) => setProblem(messageOf(error)),
      );
    void read();
    const timer = setInterval(() => void (document.hidden || read()), AGAIN_MS);
    return () => clearInterval(timer);
  }, []);
  const { value } = signed;
  const kind = value.state === "in" ? value.session.kind : "node";
  const troubles = troublesOf(samples);
  return (
    <section class="page fill">
      <header class="page-head">
        <h1>Health</h1>
        <span class="muted">{samples.length === 0 ? "" : `the last ${duration(Date.now() - (samples[0]?.at ?? 0))}, kept by the server itself`}</span>
        <span class="gap" />
        {kind === "node" && !isReadOnly() ? <DrainButton /> : null}
      </header>
      <Scroll label="Health">
        <Problem error={problem} />
        {troubles.map(({ text, command }) => (
          <div key={text} class="problem" role="alert">
            {text} <Command text={command} />
          </div>
        ))}
        {samples.length > 0 && troubles.length === 0 ? <p class="good">Nothing needs attention.</p> : null}
        <Charts samples={samples} />
        <div class="columns">
          {kind === "node" || kind === "gateway" ? <Latest /> : null}
          {kind === "node" ? (
            <Doctor />
          ) : (
            <p class="muted">{kind === "gateway" ? "Each node checks its own machine: ./svc doctor there." : "The view Cache shows this server."}</p>
          )}
        </div>
      </Scroll>
    </section>
  );
}

function Latest(): JSX.Element {
  void version.value;
  return (
    <div>
      <h2>Latest events</h2>
      <ol class="timeline">
        {events
          .slice(-RECENT)
          .reverse()
          .map(({ id, at, type, sandboxID, templateID, details }) => (
            <li key={`${id} ${at}`}>
              <Ago at={at} /> <strong>{eventWords[type] ?? type}</strong>{" "}
              {sandboxID === undefined ? templateID : <a href={to(["sandboxes", sandboxID])}>{sandboxID}</a>}{" "}
              <span class="muted">{details["reason"] === undefined ? "" : String(details["reason"])}</span>
            </li>
          ))}
      </ol>
      {events.length === 0 ? <p class="muted">None yet.</p> : null}
    </div>
  );
}

function Charts({ samples }: { readonly samples: readonly ConsoleSample[] }): JSX.Element {
  if (samples.length < 2) return <Empty title="The first samples come within half a minute." />;
  const times = samples.map(({ at }) => at);
  const line = (label: string, member: string): Line => ({ label, values: samples.map((sample) => sample[member] ?? null) });
  const has = (member: string) => samples.some((sample) => sample[member] !== undefined);
  const newest = samples.at(-1);
  const used = (label: string, free: string, total: string): Line => ({
    label,
    values: samples.map((sample) => (sample[total] === undefined ? null : (sample[total] ?? 0) - (sample[free] ?? 0))),
  });
  return (
    <div class="charts">
      {has("running") ? (
        <Chart
          title="Sandboxes"
          times={times}
          lines={[line("running", "running"), line("paused", "paused"), ...(has("waiting") ? [line("waiting", "waiting")] : [])]}
          format={(each) => count(Math.round(each))}
        />
      ) : null}
      {has("creates") ? (
        <Chart title="A second" times={times} lines={[line("creates", "creates"), line("forks", "forks"), line("ends", "ended")]} format={rate} />
      ) : null}
      {has("createP50") ? <Chart title="Create" times={times} lines={[line("p50", "createP50"), line("p99", "createP99")]} format={latency} /> : null}
      {has("forkP50") ? <Chart title="Fork" times={times} lines={[line("p50", "forkP50"), line("p99", "forkP99")]} format={latency} /> : null}
      {has("pool") ? (
        <Chart
          title="Kept ready"
          times={times}
          lines={[line("started", "pool"), line("precreated", "precreated")]}
          format={(each) => count(Math.round(each))}
        />
      ) : null}
      {has("storeCapacity") ? (
        <Chart
          title={`Memory of the store, of ${bytes(newest?.["storeCapacity"])}`}
          times={times}
          lines={[line("used", "storeUsed")]}
          format={bytes}
          most={newest?.["storeCapacity"]}
        />
      ) : null}
      {has("keys") ? <Chart title="Keys" times={times} lines={[line("stored", "keys")]} format={(each) => count(Math.round(each))} /> : null}
      {has("evicted") ? <Chart title="Keys evicted a second" times={times} lines={[line("evicted", "evicted")]} format={rate} /> : null}
      {has("blocks") ? <Chart title="Blocks" times={times} lines={[line("in the index", "blocks")]} format={(each) => count(Math.round(each))} /> : null}
      {has("requests") ? <Chart title="Requests a second" times={times} lines={[line("all", "requests"), line("failed", "errors")]} format={rate} /> : null}
      <Chart
        title={`Memory of the machine, of ${bytes(newest?.["memoryTotal"])}`}
        times={times}
        lines={[used("used", "memoryFree", "memoryTotal")]}
        format={bytes}
        most={newest?.["memoryTotal"]}
      />
      {has("diskTotal") ? (
        <Chart
          title={`Disk of the home, of ${bytes(newest?.["diskTotal"])}`}
          times={times}
          lines={[used("used", "diskFree", "diskTotal")]}
          format={bytes}
          most={newest?.["diskTotal"]}
        />
      ) : null}
      <Chart title="This server" times={times} lines={[line("processors", "cpu")]} format={(each) => percent(each)} />
    </div>
  );
}

function Doctor(): JSX.Element {
  const [found, setFound] = useState<Diagnosis>();
  const [problem, setProblem] = useState("");
  const [isBusy, setBusy] = useState(false);
  const run = async () => {
    setBusy(true);
    await request<Diagnosis>("doctor").then(setFound, (error: unknown) => setProblem(messageOf(error)));
    setBusy(false);
  };
  return (
    <div>
      <h2>
        Doctor{" "}
        <button type="button" class="small" disabled={isBusy} onClick={() => void run()}>
          {isBusy ? "Checking; it starts a sandbox with each driver …" : "Check this machine"}
        </button>
      </h2>
      <Problem error={problem} />
      {found === undefined ? <p class="muted">The same checks as ./svc doctor.</p> : null}
      <ul class="checks">
        {found?.drivers.map(({ runtime, usable, isolation }) => (
          <li key={runtime}>
            <span class={`state ${usable.works ? "running" : "failed"}`}>{runtime}</span> {usable.says} {usable.works ? `(${isolation})` : ""}
            {usable.works || usable.fix === undefined ? null : <Command text={usable.fix} />}
          </li>
        ))}
        {found?.checks.map(({ name, works, says, follows, fix }) => (
          <li key={name}>
            <span class={`state ${works ? "running" : "failed"}`}>{name}</span> {says}
            {follows === "" ? null : <div class="muted">{follows}</div>}
            {fix === "" ? null : <Command text={fix} />}
          </li>
        ))}
      </ul>
    </div>
  );
}

type Drain = { readonly isDraining: boolean; readonly running: number; readonly paused: number };

function DrainButton(): JSX.Element {
  const [drain, setDrain] = useState<Drain>();
  const read = () => call<Drain>("getNodeDrain", { nodeID: "self" }).then(setDrain, () => undefined);
  useEffect(() => {
    void read();
    const timer = setInterval(() => void (document.hidden || read()), AGAIN_MS);
    return () => clearInterval(timer);
  }, []);
  const set = (status: "draining" | "ready") =>
    call("setNodeStatus", { nodeID: "self", status }).then(
      () => {
        say(status === "draining" ? "The node takes no new sandboxes, and pauses those that run." : "The node takes new sandboxes again.");
        return read();
      },
      (error: unknown) => say(messageOf(error), "bad"),
    );
  if (drain?.isDraining === true)
    return (
      <>
        <span class="state draining">
          draining: {count(drain.running)} still run, {count(drain.paused)} are paused
        </span>
        <button type="button" class="primary" onClick={() => void set("ready")}>
          Make it ready again
        </button>
      </>
    );
  return (
    <button
      type="button"
      class="danger"
      onClick={() =>
        confirm({
          title: "Drain this node?",
          loses: "It takes no new sandboxes and pauses those that run. Nothing is deleted; making it ready again lets them be resumed.",
          act: "Drain",
          onYes: () => void set("draining"),
        })
      }
    >
      Drain this node
    </button>
  );
}
