// A sandbox's log as it grows: filtered by kind and words, and followed while the view is at its end.
import type { ConsoleLogEntry } from "@svc/contract/console.ts";
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { exact } from "../format.ts";
import { channel } from "../live.ts";
import { Empty, Problem, textFrom } from "../parts.tsx";
import type { TabProps } from "./sandbox.tsx";

/** The number of lines that the page keeps; the server still has older ones. */
const KEPT = 5_000;
const kinds = ["", "process", "lifecycle", "network"] as const;

/** Follows the log of a sandbox. After a reconnect the server repeats the log's end, so entries that are not newer are dropped. */
export function useLog(sandboxID: string): { readonly entries: readonly ConsoleLogEntry[]; readonly problem: string; readonly isRead: boolean } {
  const [entries, setEntries] = useState<readonly ConsoleLogEntry[]>([]);
  const [problem, setProblem] = useState("");
  const [isRead, setRead] = useState(false);
  useEffect(() => {
    let newest = "";
    const timer = setTimeout(() => setRead(true), 500);
    const own = channel((id) => ({ t: "open", id, kind: "log", sandboxID }), {
      onMessage(message) {
        setRead(true);
        if (message.t === "end" && message.error !== undefined) setProblem(message.error);
        if (message.t !== "log") return;
        // All entries of a sandbox have different times, so the time identifies an entry.
        const fresh = message.entries.filter(({ timestamp }) => timestamp > newest);
        newest = fresh.at(-1)?.timestamp ?? newest;
        setEntries((before) => [...before, ...fresh].slice(-KEPT));
      },
    });
    return () => {
      clearTimeout(timer);
      own.close();
    };
  }, [sandboxID]);
  return { entries, problem, isRead };
}

export function Logs({ row }: TabProps): JSX.Element {
  const { entries, problem, isRead } = useLog(row.id);
  const [kind, setKind] = useState("");
  const [text, setText] = useState("");
  const end = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  const words = text.toLowerCase();
  const shown = entries.filter(({ message, fields }) => (kind === "" || fields["kind"] === kind) && message.toLowerCase().includes(words));
  useEffect(() => {
    if (isAtEnd.current && end.current !== null) end.current.scrollTop = end.current.scrollHeight;
  }, [shown.length]);
  return (
    <>
      <div class="bar">
        <select aria-label="Kind" value={kind} onChange={(event) => setKind(textFrom(event))}>
          {kinds.map((each) => (
            <option key={each} value={each}>
              {each === "" ? "All kinds" : each}
            </option>
          ))}
        </select>
        <input id="filter" type="search" aria-label="Search the log" placeholder="Search" value={text} onInput={(event) => setText(textFrom(event))} />
        <span class="muted">{shown.length} lines</span>
      </div>
      <Problem error={problem} />
      {shown.length === 0 && isRead ? <Empty title="The log has no such line." /> : null}
      <div
        class="log"
        ref={end}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling region needs the focus for the keys that scroll
        tabIndex={0}
        role="log"
        aria-label="Log"
        onScroll={({ currentTarget: own }) => {
          isAtEnd.current = own.scrollHeight - own.scrollTop - own.clientHeight < 40;
        }}
      >
        {shown.map(({ timestamp, message, level, fields }) => (
          <div key={timestamp} class={`line ${level}`}>
            <time dateTime={timestamp} title={exact(Date.parse(timestamp))}>
              {timestamp.slice(11, 23)}
            </time>
            <span class="kind">{fields["kind"]}</span>
            <span class="message">{message}</span>
          </div>
        ))}
      </div>
    </>
  );
}
