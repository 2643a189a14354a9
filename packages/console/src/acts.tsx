// The actions that a person can take on one or many sandboxes. Each reports its result, or the server's error message.
import type { ConsoleRow } from "@svc/contract/console.ts";
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { closeDialog, confirm, openDialog } from "./dialog.tsx";
import { Field, Problem, textFrom } from "./parts.tsx";
import { go, to } from "./router.ts";
import { rows } from "./rows.ts";
import { call, isReadOnly, messageOf, servesSandboxes, signed } from "./session.ts";
import { say } from "./toasts.tsx";

/** The number of requests that one action sends at the same time. */
const AT_ONCE = 6;

export type Act = "pause" | "resume" | "fork" | "snapshot" | "extend" | "delete";
export const acts: readonly { readonly act: Act; readonly label: string; readonly fits: (row: ConsoleRow) => boolean }[] = [
  { act: "pause", label: "Pause", fits: ({ state }) => state === "running" },
  { act: "resume", label: "Resume", fits: ({ state }) => state === "paused" },
  { act: "fork", label: "Fork", fits: ({ state }) => state === "running" },
  { act: "snapshot", label: "Snapshot", fits: ({ state }) => state === "running" },
  { act: "extend", label: "Extend", fits: ({ state }) => state === "running" },
  { act: "delete", label: "Delete", fits: ({ state }) => state !== "ended" },
];

const done: Readonly<Record<Act, string>> = {
  pause: "Paused",
  resume: "Resumed",
  fork: "Forked",
  snapshot: "Took a snapshot of",
  extend: "Set the end of",
  delete: "Deleted",
};

/** Carries out an action on the sandboxes whose state permits it, after a dialog if the action needs input or confirmation. */
export function perform(act: Act, ids: readonly string[]): void {
  const fits = acts.find((each) => each.act === act)?.fits ?? (() => false);
  const wanted = ids.filter((id) => {
    const row = rows.get(id);
    return row !== undefined && fits(row);
  });
  if (isReadOnly() || wanted.length === 0) {
    say(isReadOnly() ? "This console is read-only." : `None of these can be used for ${act}.`, "bad");
    return;
  }
  const what = wanted.length === 1 ? `sandbox ${wanted[0]}` : `${wanted.length} sandboxes`;
  if (act === "delete")
    confirm({
      title: `Delete ${what}?`,
      loses: `The files, the memory and all running programs of ${what} are lost. Snapshots and forks stay.`,
      act: "Delete",
      onYes: () => void run(act, wanted, (sandboxID) => call("deleteSandbox", { sandboxID })),
    });
  else if (act === "pause") void run(act, wanted, (sandboxID) => call("pauseSandbox", { sandboxID }));
  else openDialog({ title: `${titles[act]} ${what}`, body: () => <Details act={act} ids={wanted} /> });
}

const titles = { fork: "Fork", extend: "Extend", resume: "Resume", snapshot: "Snapshot of" } as const;

/** A sandbox that goes on gets as long as it was meant to live altogether, since its time ran out or was stopped by the pause. */
function minutesFor(id: string | undefined): number {
  const row = rows.get(id ?? "");
  return row === undefined ? 60 : Math.min(10_080, Math.max(5, Math.ceil((row.endAt - row.startedAt) / 60_000)));
}

function Details({ act, ids }: { readonly act: keyof typeof titles; readonly ids: readonly string[] }): JSX.Element {
  const isTime = act === "extend" || act === "resume";
  const [value, setValue] = useState(act === "fork" ? "1" : act === "extend" ? "60" : act === "resume" ? String(minutesFor(ids[0])) : "");
  const submit = (event: Event) => {
    event.preventDefault();
    closeDialog();
    if (act === "fork") void fork(ids, Number(value));
    else if (act === "resume") void run(act, ids, (sandboxID) => call("connectSandbox", { sandboxID, timeout: Number(value) * 60 }));
    else if (act === "extend") void run(act, ids, (sandboxID) => call("setSandboxTimeout", { sandboxID, timeout: Number(value) * 60 }));
    else void run(act, ids, (sandboxID) => call("createSnapshot", { sandboxID, ...(value === "" ? {} : { name: value }) }));
  };
  return (
    <form onSubmit={submit}>
      {act === "fork" ? (
        <Field label="Number of copies" hint="Each copy has the memory and the files of this moment.">
          <input type="number" min="1" max="100" required value={value} onInput={(event) => setValue(textFrom(event))} />
        </Field>
      ) : isTime ? (
        <Field label="Minutes from now until it ends" hint={act === "extend" ? "Fewer than it has left make it end sooner." : undefined}>
          <input type="number" min="1" max="10080" required value={value} onInput={(event) => setValue(textFrom(event))} />
        </Field>
      ) : (
        <Field label="Name" hint="Empty: none. NAME or NAME:TAG; new sandboxes can start from it.">
          <input value={value} pattern="[a-z0-9][a-z0-9_.\-]*(:[A-Za-z0-9][A-Za-z0-9_.\-]*)?" onInput={(event) => setValue(textFrom(event))} />
        </Field>
      )}
      <footer>
        <button type="button" onClick={closeDialog}>
          Cancel
        </button>
        <button type="submit" class="primary">
          {act === "fork" ? "Fork" : act === "extend" ? "Set" : act === "resume" ? "Resume" : "Take snapshot"}
        </button>
      </footer>
    </form>
  );
}

type Child = { readonly sandbox?: { readonly sandboxID: string }; readonly error?: { readonly message: string } };

async function fork(ids: readonly string[], copies: number): Promise<void> {
  await run("fork", ids, async (sandboxID) => {
    const children = await call<Child[]>("forkSandbox", { sandboxID, count: copies });
    const failed = children.find(({ error }) => error !== undefined)?.error;
    if (failed !== undefined) throw new Error(failed.message);
    const [only] = children;
    if (ids.length === 1 && copies === 1 && only?.sandbox !== undefined) go(to(["sandboxes", only.sandbox.sandboxID]));
  });
}

/** Runs an action on many sandboxes, a few at a time, and reports the result once. */
async function run(act: Act, ids: readonly string[], one: (id: string) => Promise<unknown>): Promise<void> {
  const waiting = [...ids];
  const failures: string[] = [];
  const work = async () => {
    for (let id = waiting.shift(); id !== undefined; id = waiting.shift()) {
      await one(id).catch((error: unknown) => failures.push(messageOf(error)));
    }
  };
  await Promise.all(Array.from({ length: Math.min(AT_ONCE, ids.length) }, work));
  const good = ids.length - failures.length;
  if (good > 0) say(`${done[act]} ${good === 1 ? (ids.length === 1 ? (ids[0] ?? "") : "1 sandbox") : `${good} sandboxes`}.`);
  const [first] = failures;
  if (first !== undefined) say(failures.length === 1 ? first : `${failures.length} failed; the first: ${first}`, "bad");
}

export function openCreate(from = "base"): void {
  const { value } = signed;
  if (isReadOnly()) say("This console is read-only.", "bad");
  else if (value.state === "in" && !servesSandboxes(value.session))
    say(`${value.session.title} runs no sandboxes; open the console of a node or a gateway.`, "bad");
  else openDialog({ title: "Create a sandbox", body: () => <Create from={from} /> });
}

type Listed = { readonly templateID: string; readonly names?: readonly string[]; readonly aliases?: readonly string[] };

function Create({ from }: { readonly from: string }): JSX.Element {
  const [template, setTemplate] = useState(from);
  const [minutes, setMinutes] = useState("10");
  const [metadata, setMetadata] = useState("");
  const [isPausing, setPausing] = useState(false);
  const [isOffline, setOffline] = useState(false);
  const [problem, setProblem] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [known, setKnown] = useState<readonly string[]>();
  if (known === undefined) {
    setKnown([]);
    void call<Listed[]>("listTemplates").then(
      (list) => setKnown(list.flatMap(({ templateID, names, aliases }) => names?.[0] ?? aliases?.[0] ?? templateID)),
      () => undefined,
    );
  }
  const submit = async (event: Event) => {
    event.preventDefault();
    const pairs = metadata
      .split(/[\n,]/)
      .map((pair) => pair.trim())
      .filter((pair) => pair !== "");
    const bad = pairs.find((pair) => !/^[^=]+=/.test(pair));
    if (bad !== undefined) return setProblem(`metadata: expected NAME=VALUE, got "${bad}"`);
    setBusy(true);
    try {
      const { sandboxID } = await call<{ sandboxID: string }>("createSandbox", {
        templateID: template,
        timeout: Number(minutes) * 60,
        autoPause: isPausing,
        ...(isOffline ? { allow_internet_access: false } : {}),
        metadata: Object.fromEntries(pairs.map((pair) => [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)])),
      });
      closeDialog();
      say(`Created ${sandboxID}.`);
      go(to(["sandboxes", sandboxID]));
    } catch (error) {
      setProblem(messageOf(error));
      setBusy(false);
    }
  };
  return (
    <form onSubmit={(event) => void submit(event)}>
      <Field label="Template">
        <input list="templates" required value={template} onInput={(event) => setTemplate(textFrom(event))} />
      </Field>
      <datalist id="templates">
        {known?.map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
      <Field label="Minutes to live">
        <input type="number" min="1" max="10080" required value={minutes} onInput={(event) => setMinutes(textFrom(event))} />
      </Field>
      <Field label="Metadata" hint="NAME=VALUE, a line each; runs are grouped by it.">
        <textarea rows={2} value={metadata} onInput={(event) => setMetadata(textFrom(event))} placeholder="run=42" />
      </Field>
      <label class="check">
        <input type="checkbox" checked={isPausing} onChange={(event) => setPausing(event.currentTarget.checked)} /> Pause at the end, instead of deleting it
      </label>
      <label class="check">
        <input type="checkbox" checked={isOffline} onChange={(event) => setOffline(event.currentTarget.checked)} /> No internet access
      </label>
      <Problem error={problem} />
      <footer>
        <button type="button" onClick={closeDialog}>
          Cancel
        </button>
        <button type="submit" class="primary" disabled={isBusy}>
          {isBusy ? "Creating …" : "Create"}
        </button>
      </footer>
    </form>
  );
}
