// One build as it runs: its steps with their times, those from the cache, and the output of each.
import type { BuildLogEntry } from "@svc/contract/template-build.ts";
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { duration } from "./format.ts";
import { now, Output, Problem, State } from "./parts.tsx";
import { call, isReadOnly, messageOf } from "./session.ts";
import { say } from "./toasts.tsx";

const AGAIN_MS = 500;
/** The same bound as BUILD_LOG_PAGE of the contract. */
const PAGE = 100;
const KEPT_LINES = 400;
const CACHED = / \(cached\)$/;
const TITLE = /^\[\d+\/\d+\] /;

type Status = { readonly status: string; readonly logEntries: readonly BuildLogEntry[]; readonly reason?: { readonly message: string } };
type Step = {
  readonly key: string;
  readonly title: string;
  readonly isCached: boolean;
  readonly startedAt: number;
  readonly endedAt: number | undefined;
  readonly output: readonly string[];
};

/** Splits the log into steps: a title begins one, and so does another step's name. */
function stepsOf(entries: readonly BuildLogEntry[], isOver: boolean): Step[] {
  const steps: { key: string; name: string | undefined; title: string; isCached: boolean; startedAt: number; output: string[] }[] = [];
  for (const { step, message, timestamp } of entries) {
    const isTitle = TITLE.test(message);
    const last = steps.at(-1);
    if (last === undefined || last.name !== step || isTitle)
      steps.push({
        key: `${steps.length}`,
        name: step,
        title: isTitle ? message.replace(CACHED, "") : step === "base" ? "base image" : step === "finalize" ? "start and ready commands" : (step ?? "build"),
        isCached: isTitle && CACHED.test(message),
        startedAt: Date.parse(timestamp),
        output: isTitle ? [] : [message],
      });
    else last.output.push(message);
  }
  const end = Date.parse(entries.at(-1)?.timestamp ?? "");
  return steps.map((step, at) => ({ ...step, output: step.output.slice(-KEPT_LINES), endedAt: steps[at + 1]?.startedAt ?? (isOver ? end : undefined) }));
}

export function Build({ templateID, buildID }: { readonly templateID: string; readonly buildID: string }): JSX.Element {
  const [entries, setEntries] = useState<readonly BuildLogEntry[]>([]);
  const [status, setStatus] = useState("waiting");
  const [problem, setProblem] = useState("");
  useEffect(() => {
    let isLeft = false;
    const read = async () => {
      let all: readonly BuildLogEntry[] = [];
      while (!isLeft) {
        try {
          const found = await call<Status>("getBuildStatus", { templateID, buildID, logsOffset: all.length });
          if (isLeft) return;
          all = [...all, ...found.logEntries];
          setEntries(all);
          setStatus(found.status);
          setProblem(found.reason?.message ?? "");
          if (found.logEntries.length === PAGE) continue;
          if (found.status === "ready" || found.status === "error") return;
        } catch (error) {
          setProblem(messageOf(error));
        }
        await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
      }
    };
    void read();
    return () => {
      isLeft = true;
    };
  }, [templateID, buildID]);
  const isOver = status === "ready" || status === "error";
  return (
    <div>
      <h2>
        Build {buildID.slice(0, 12)} <State state={status} />{" "}
        {isOver || isReadOnly() ? null : (
          <button
            type="button"
            class="small danger"
            onClick={() => void call("cancelBuild", { templateID, buildID }).catch((error: unknown) => say(messageOf(error), "bad"))}
          >
            Cancel the build
          </button>
        )}
      </h2>
      <Problem error={problem} />
      <ol class="steps">
        {stepsOf(entries, isOver).map(({ key, title, isCached, startedAt, endedAt, output }) => (
          <li key={key}>
            <details open={endedAt === undefined || (status === "error" && output.length > 0 && endedAt === Date.parse(entries.at(-1)?.timestamp ?? ""))}>
              <summary>
                <code>{title}</code> <span class="muted">{isCached ? "cached" : duration((endedAt ?? now.value) - startedAt)}</span>
              </summary>
              {output.length === 0 ? null : <Output text={output.join("\n")} label={`Output of ${title}`} />}
            </details>
          </li>
        ))}
      </ol>
    </div>
  );
}
