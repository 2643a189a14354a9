// The page of one sandbox: its state, the actions on it, and its tabs, each with its own address.
import type { ConsoleRow } from "@svc/contract/console.ts";
import type { SandboxDetail } from "@svc/contract/sandbox.ts";
import type { FunctionComponent, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { acts, perform } from "../acts.tsx";
import { eventWords, exact, megabytes, reasonWords } from "../format.ts";
import { Ago, Copy, Empty, Left, Output, Problem, Scroll, State } from "../parts.tsx";
import { path, to } from "../router.ts";
import { events, filterFor, hasFailed, isLoaded, rows, version } from "../rows.ts";
import { call, isReadOnly, messageOf, signed } from "../session.ts";
import { later } from "../views.tsx";
import { Files } from "./files.tsx";
import { Logs } from "./logs.tsx";
import { Network } from "./network.tsx";
import { Ports } from "./ports.tsx";
import { Processes } from "./processes.tsx";

export type TabProps = { readonly row: ConsoleRow; readonly detail: SandboxDetail | undefined };
type Tab = {
  readonly name: string;
  readonly title: string;
  readonly needs: "running" | "any";
  readonly isWriting?: boolean;
  readonly Tab: FunctionComponent<TabProps>;
};

const tabs: readonly Tab[] = [
  { name: "overview", title: "Overview", needs: "any", Tab: Overview },
  { name: "terminal", title: "Terminal", needs: "running", isWriting: true, Tab: later(async () => (await import("./terminal.tsx")).Terminals) },
  { name: "log", title: "Log", needs: "any", Tab: Logs },
  { name: "files", title: "Files", needs: "running", isWriting: true, Tab: Files },
  { name: "processes", title: "Processes", needs: "running", isWriting: true, Tab: Processes },
  { name: "metrics", title: "Metrics", needs: "any", Tab: later(async () => (await import("./metrics.tsx")).SandboxMetrics) },
  { name: "network", title: "Network", needs: "any", Tab: Network },
  { name: "ports", title: "Ports", needs: "running", Tab: Ports },
];

export function Sandbox({ id }: { readonly id: string }): JSX.Element {
  void version.value;
  const row = rows.get(id);
  const [detail, setDetail] = useState<SandboxDetail>();
  const [problem, setProblem] = useState("");
  const mark = row === undefined ? "" : `${row.state} ${row.endAt}`;
  useEffect(() => {
    if (row === undefined || row.state === "ended") return;
    call<SandboxDetail>("getSandbox", { sandboxID: id }).then(
      (found) => {
        setDetail(found);
        setProblem("");
      },
      (error: unknown) => setProblem(messageOf(error)),
    );
  }, [id, mark]);
  if (row === undefined)
    return (
      <section class="page">
        <h1>{id}</h1>
        {isLoaded.value ? (
          <Empty title="There is no sandbox with this id, and none ended lately.">
            <a href={to(["sandboxes"])}>All sandboxes</a>
          </Empty>
        ) : (
          <Empty title="Reading the list …" />
        )}
      </section>
    );
  const [, , name = "overview"] = path.value;
  const shown = tabs.filter(({ isWriting }) => isWriting !== true || !isReadOnly());
  const tab = shown.find((each) => each.name === name) ?? shown[0];
  return (
    <section class="page fill">
      <header class="page-head">
        <h1>
          <a href={to(["sandboxes"])}>Sandboxes /</a> {id}
        </h1>
        <State state={row.state} failed={hasFailed(row)} />
        {row.state === "running" ? <Left from={row.startedAt} until={row.endAt} /> : null}
        <Copy text={id} what="the id" label="Copy id" />
        <span class="gap" />
        {isReadOnly()
          ? null
          : acts
              .filter(({ fits }) => fits(row))
              .map(({ act, label }) => (
                <button key={act} type="button" class={act === "delete" ? "danger" : ""} onClick={() => perform(act, [id])}>
                  {label}
                </button>
              ))}
      </header>
      <nav class="tabs" aria-label="Parts of the sandbox">
        {shown.map((each) => (
          <a key={each.name} href={to(["sandboxes", id, each.name])} aria-current={each.name === tab?.name ? "page" : undefined}>
            {each.title}
          </a>
        ))}
      </nav>
      <Problem error={problem} />
      {tab === undefined ? null : tab.needs === "running" && row.state !== "running" ? (
        <Empty title={row.state === "paused" ? "This sandbox is paused." : "This sandbox has ended."}>
          {row.state === "paused" && !isReadOnly() ? (
            <button type="button" class="primary" onClick={() => perform("resume", [id])}>
              Resume it
            </button>
          ) : (
            <a href={to(["sandboxes", id, "log"])}>Its log says why</a>
          )}
        </Empty>
      ) : (
        <tab.Tab key={tab.name} row={row} detail={detail} />
      )}
    </section>
  );
}

function Overview({ row, detail }: TabProps): JSX.Element {
  const own = events.filter(({ sandboxID }) => sandboxID === row.id).reverse();
  return (
    <Scroll label="Overview" kind="columns">
      <div>
        {row.state === "ended" ? <Death row={row} /> : null}
        <dl>
          <dt>Template</dt>
          <dd>{row.alias === undefined ? row.template : `${row.alias} (${row.template})`}</dd>
          <dt>Started</dt>
          <dd>
            <Ago at={row.startedAt} />
          </dd>
          {row.state === "running" ? (
            <>
              <dt>Ends</dt>
              <dd>
                {exact(row.endAt)}
                {detail?.lifecycle.onTimeout === "pause" ? ", by a pause" : ", by a delete"}
              </dd>
            </>
          ) : null}
          <dt>Size</dt>
          <dd>
            {row.cpu} CPU, {megabytes(row.memoryMB)} memory, {megabytes(row.diskMB)} disk
          </dd>
          {row.parent === undefined ? null : (
            <>
              <dt>Forked from</dt>
              <dd>
                <a href={to(["sandboxes", row.parent])}>{row.parent}</a>, depth {row.depth}
              </dd>
            </>
          )}
          <dt>Metadata</dt>
          <dd>
            {Object.keys(row.metadata).length === 0 ? <span class="muted">none</span> : null}
            {Object.entries(row.metadata).map(([name, value]) => (
              <div key={name}>
                <a href={to(["sandboxes"], { q: filterFor(name, value) })}>
                  {name}={value}
                </a>
              </div>
            ))}
          </dd>
        </dl>
        {row.state === "ended" ? null : <Snippets id={row.id} />}
      </div>
      <div>
        <h2>Timeline</h2>
        {own.length === 0 ? <p class="muted">No event of it is kept.</p> : null}
        <ol class="timeline">
          {own.map((event) => (
            <li key={`${event.id} ${event.at}`}>
              <Ago at={event.at} /> <strong>{eventWords[event.type] ?? event.type}</strong>{" "}
              <span class="muted">
                {Object.entries(event.details)
                  .map(([name, value]) => `${name} ${String(value)}`)
                  .join(", ")}
              </span>
            </li>
          ))}
        </ol>
      </div>
    </Scroll>
  );
}

type Entry = { readonly timestamp: string; readonly message: string; readonly level: string };

/** Shows why a sandbox ended, with the last lines of its log as evidence. */
function Death({ row }: { readonly row: ConsoleRow }): JSX.Element {
  const [lines, setLines] = useState<readonly Entry[]>();
  useEffect(() => {
    call<{ logs: Entry[] }>("getSandboxLogsV2", { sandboxID: row.id, direction: "backward", cursor: Date.now() + 60_000, limit: 12 }).then(
      ({ logs }) => setLines([...logs].reverse()),
      () => setLines([]),
    );
  }, [row.id]);
  return (
    <div class={`death ${hasFailed(row) ? "bad" : ""}`}>
      <h2>Ended: {reasonWords(row.reason ?? "unknown")}</h2>
      {lines?.length === 0 ? <p class="muted">Its log is no longer kept.</p> : null}
      <Output text={lines?.map(({ message }) => message).join("\n") ?? ""} label="The end of its log" />
    </div>
  );
}

function Snippets({ id }: { readonly id: string }): JSX.Element | null {
  const { value } = signed;
  if (value.state !== "in" || value.session.isReadOnly) return null;
  const url = location.origin;
  const variables = `export E2B_API_URL=${url} E2B_SANDBOX_URL=${url} E2B_API_KEY=$(cat $SVC_HOME/secrets/api-key)`;
  const python = `from e2b import Sandbox\nsandbox = Sandbox.connect("${id}")\nprint(sandbox.commands.run("uname -a").stdout)`;
  const typescript = `import { Sandbox } from "e2b";\nconst sandbox = await Sandbox.connect("${id}");\nconsole.log((await sandbox.commands.run("uname -a")).stdout);`;
  const tokens = async () => {
    const { envdAccessToken = "", trafficAccessToken } = await call<SandboxDetail>("getSandbox", { sandboxID: id });
    return trafficAccessToken == null ? envdAccessToken : `${envdAccessToken}\n${trafficAccessToken}`;
  };
  return (
    <div class="snippets">
      <h2>Use it from a program</h2>
      <p>
        <Copy text={variables} what="the E2B variables for a shell" label="E2B_* variables" /> <Copy text={python} what="the Python snippet" label="Python" />{" "}
        <Copy text={typescript} what="the TypeScript snippet" label="TypeScript" />{" "}
        <Copy text={`./svc connect ${id}`} what="the svc command" label="svc connect" /> <Copy text={tokens} what="its access tokens" label="Tokens" />
      </p>
      <Output text={python} label="A program in Python" />
    </div>
  );
}
