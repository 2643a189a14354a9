// The table of sandboxes: only the rows in view are in the document, so ten thousand cost as much as forty.
import type { ConsoleRow } from "@svc/contract/console.ts";
import type { JSX } from "preact";
import { memo } from "preact/compat";
import { useEffect, useRef, useState } from "preact/hooks";
import { megabytes, reasonWords } from "./format.ts";
import { Ago, Left, State } from "./parts.tsx";
import { go, to } from "./router.ts";
import { hasFailed, type SortKey } from "./rows.ts";

const ROW_PX = 32;
/** Rows above and below the view, so that scrolling shows no gaps. */
const EXTRA = 8;

export type GridProps = {
  readonly list: readonly ConsoleRow[];
  readonly sort: SortKey;
  readonly isReversed: boolean;
  readonly onSort: (key: SortKey) => void;
  readonly chosen: ReadonlySet<string>;
  readonly onChoose: (ids: readonly string[], isChosen: boolean) => void;
  readonly onFocus: (id: string) => void;
};

const columns: readonly { readonly key: SortKey | undefined; readonly label: string; readonly class: string }[] = [
  { key: "name", label: "Sandbox", class: "id" },
  { key: "state", label: "State", class: "" },
  { key: "template", label: "Template", class: "" },
  { key: undefined, label: "Metadata", class: "metadata" },
  { key: "memory", label: "Memory", class: "number" },
  { key: "started", label: "Started", class: "number" },
  { key: "left", label: "Time left, or reason", class: "left-column" },
];

export function Grid(props: GridProps): JSX.Element {
  const { list, sort, isReversed, onSort, chosen, onChoose } = props;
  const view = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  useEffect(() => {
    const own = view.current;
    if (own === null) return;
    const observer = new ResizeObserver(() => setHeight(own.clientHeight));
    observer.observe(own);
    return () => observer.disconnect();
  }, []);
  const first = Math.max(0, Math.floor(top / ROW_PX) - EXTRA);
  const last = Math.min(list.length, Math.ceil((top + height) / ROW_PX) + EXTRA);
  const areAllChosen = list.length > 0 && chosen.size >= list.length && list.every(({ id }) => chosen.has(id));
  return (
    <section
      class="grid"
      ref={view}
      // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling region needs the focus for the keys that scroll
      tabIndex={0}
      aria-label="Sandboxes"
      onScroll={(event) => setTop(event.currentTarget.scrollTop)}
    >
      <table aria-rowcount={list.length + 1}>
        <thead>
          <tr aria-rowindex={1}>
            <th class="tick">
              <input
                type="checkbox"
                aria-label="Choose all that are listed"
                checked={areAllChosen}
                onChange={(event) =>
                  onChoose(
                    list.map(({ id }) => id),
                    event.currentTarget.checked,
                  )
                }
              />
            </th>
            {columns.map(({ key, label, class: name }) => (
              <th key={label} class={name} scope="col" aria-sort={key !== sort ? undefined : isReversed ? "descending" : "ascending"}>
                {key === undefined ? (
                  label
                ) : (
                  <button type="button" class="plain" onClick={() => onSort(key)}>
                    {label}
                    <span aria-hidden="true">{key === sort ? (isReversed ? " ↑" : " ↓") : ""}</span>
                  </button>
                )}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          <tr class="spacer">
            <td style={{ height: `${first * ROW_PX}px` }} />
          </tr>
          {list.slice(first, last).map((row, at) => (
            <Row key={row.id} row={row} index={first + at + 2} isChosen={chosen.has(row.id)} onChoose={onChoose} onFocus={props.onFocus} />
          ))}
          <tr class="spacer">
            <td style={{ height: `${Math.max(0, list.length - last) * ROW_PX}px` }} />
          </tr>
        </tbody>
      </table>
    </section>
  );
}

type RowProps = { readonly row: ConsoleRow; readonly index: number; readonly isChosen: boolean } & Pick<GridProps, "onChoose" | "onFocus">;

const Row = memo(function Row({ row, index, isChosen, onChoose, onFocus }: RowProps): JSX.Element {
  const target = to(["sandboxes", row.id]);
  const onKeyDown = (event: KeyboardEvent & { currentTarget: HTMLTableRowElement }) => {
    const { currentTarget: own, key } = event;
    const next = key === "ArrowDown" || key === "j" ? own.nextElementSibling : key === "ArrowUp" || key === "k" ? own.previousElementSibling : null;
    if (next instanceof HTMLTableRowElement && next.tabIndex === 0) {
      event.preventDefault();
      next.focus();
    } else if (event.target === own && key === "Enter") go(target);
    else if (event.target === own && (key === " " || key === "x")) {
      event.preventDefault();
      onChoose([row.id], !isChosen);
    }
  };
  const pairs = Object.entries(row.metadata).map(([name, value]) => `${name}=${value}`);
  return (
    <tr aria-rowindex={index} tabIndex={0} class={isChosen ? "chosen" : ""} onKeyDown={onKeyDown} onFocus={() => onFocus(row.id)} onDblClick={() => go(target)}>
      <td class="tick">
        <input
          type="checkbox"
          tabIndex={-1}
          aria-label={`Choose ${row.id}`}
          checked={isChosen}
          onChange={(event) => onChoose([row.id], event.currentTarget.checked)}
        />
      </td>
      <td class="id">
        <a href={target}>{row.id}</a>
        {row.parent === undefined ? null : (
          <span class="muted" title={`forked from ${row.parent}`}>
            {" "}
            ↳{row.depth}
          </span>
        )}
      </td>
      <td>
        <State state={row.state} failed={hasFailed(row)} />
      </td>
      <td class="text" title={row.template}>
        {row.alias ?? row.template}
      </td>
      <td class="text metadata" title={pairs.join("\n")}>
        {pairs.join("  ")}
      </td>
      <td class="number">{row.memoryMB === 0 ? "" : megabytes(row.memoryMB)}</td>
      <td class="number">
        <Ago at={row.startedAt} />
      </td>
      <td class="left-column">
        {row.state === "running" ? (
          <Left from={row.startedAt} until={row.endAt} />
        ) : row.state === "ended" ? (
          reasonWords(row.reason ?? "")
        ) : (
          "kept until deleted"
        )}
      </td>
    </tr>
  );
});
