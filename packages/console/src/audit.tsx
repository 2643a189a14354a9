// The audit log: who changed what, from where, and which credentials were refused.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Ago, Empty, Problem, Scroll } from "./parts.tsx";
import { to } from "./router.ts";
import { messageOf, request } from "./session.ts";

const AGAIN_MS = 5_000;

type Line = {
  readonly at: string;
  readonly kind: string;
  readonly operation?: string;
  readonly what?: string;
  readonly target?: Readonly<Record<string, string>>;
  readonly sandboxID?: string;
  readonly templateID?: string;
  readonly status?: number;
  readonly errorCode?: string;
  readonly outcome?: string;
  readonly reason?: string;
  readonly client?: string;
  readonly keyFingerprint?: string;
  readonly userAgent?: string;
  readonly further?: number;
  readonly lines?: number;
};

/** Returns a short description of a line: the operation, the node's own action, or the number of lines that the log left out. */
function whatOf({ kind, operation, what, further, lines }: Line): string {
  if (kind === "refusals") return `${further ?? 0} more refused credentials`;
  if (kind === "loss") return `${lines ?? 0} lines could not be written`;
  return operation ?? what ?? kind;
}

const targetOf = ({ target, sandboxID, templateID }: Line) => sandboxID ?? target?.["sandboxID"] ?? templateID ?? Object.values(target ?? {}).join(", ");
const resultOf = ({ status, errorCode, outcome, reason }: Line) => [status, errorCode, outcome, reason].filter((each) => each !== undefined).join(" ");
const isBad = ({ kind, status }: Line) => kind === "refusals" || kind === "loss" || (status ?? 0) >= 400;

export function Audit(): JSX.Element {
  const [lines, setLines] = useState<readonly Line[]>();
  const [words, setWords] = useState("");
  const [problem, setProblem] = useState("");
  useEffect(() => {
    const read = () =>
      request<{ lines: Line[] }>("audit").then(
        (answer) => {
          setLines(answer.lines);
          setProblem("");
        },
        (error: unknown) => setProblem(messageOf(error)),
      );
    void read();
    const timer = setInterval(() => void (document.hidden || read()), AGAIN_MS);
    return () => clearInterval(timer);
  }, []);
  const wanted = words.toLowerCase().split(/\s+/);
  const shown = (lines ?? []).filter((line) => {
    const text = JSON.stringify(line).toLowerCase();
    return wanted.every((word) => text.includes(word));
  });
  return (
    <section class="page fill">
      <header class="page-head">
        <h1>Audit</h1>
        <input
          id="filter"
          type="search"
          placeholder="Filter"
          aria-label="Filter the audit log"
          value={words}
          onInput={(event) => setWords(event.currentTarget.value)}
        />
      </header>
      <Problem error={problem} />
      <Scroll label="Audit log">
        {lines === undefined ? null : shown.length === 0 ? (
          <Empty title={lines.length === 0 ? "Nothing has been changed yet." : "No line has these words."} />
        ) : (
          <table>
            <thead>
              <tr>
                <th scope="col">When</th>
                <th scope="col">What</th>
                <th scope="col">Of</th>
                <th scope="col">Result</th>
                <th scope="col">Client</th>
                <th scope="col">Key</th>
                <th scope="col">Program</th>
              </tr>
            </thead>
            <tbody>
              {shown.map((line, index) => (
                <tr key={`${line.at} ${index}`}>
                  <td>
                    <Ago at={Date.parse(line.at)} />
                  </td>
                  <th scope="row">{whatOf(line)}</th>
                  <td>
                    {line.sandboxID === undefined && line.target?.["sandboxID"] === undefined ? (
                      targetOf(line)
                    ) : (
                      <a href={to(["sandboxes", targetOf(line)])}>{targetOf(line)}</a>
                    )}
                  </td>
                  <td>
                    <span class={isBad(line) ? "state failed" : ""}>{resultOf(line)}</span>
                  </td>
                  <td>{line.client}</td>
                  <td>
                    <code>{line.keyFingerprint}</code>
                  </td>
                  <td class="muted">{line.userAgent}</td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </Scroll>
    </section>
  );
}
