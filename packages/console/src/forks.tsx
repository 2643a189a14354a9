// Draws the tree of forks and snapshots: each node is a sandbox or a snapshot, with its page and its actions.
import type { ConsoleRow } from "@svc/contract/console.ts";
import type { SnapshotInfo } from "@svc/contract/lifecycle.ts";
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { acts, openCreate, perform } from "./acts.tsx";
import { bytes, count } from "./format.ts";
import { Ago, Command, Empty, Left, Problem, Scroll, State } from "./parts.tsx";
import { query, setQuery, to } from "./router.ts";
import { events, hasFailed, rows, version } from "./rows.ts";
import { isReadOnly, messageOf, pages } from "./session.ts";

type Item = { readonly id: string; readonly row?: ConsoleRow; readonly snapshot?: SnapshotInfo; readonly children: Item[] };
type Placed = { readonly item: Item; readonly x: number; readonly y: number; readonly parent: Placed | undefined };

const COLUMN_PX = 200;
const LINE_PX = 34;
const BOX_PX = 172;
/** Larger trees are cut; the table lists the rest. */
const MOST = 600;

/** Builds the trees that have more than one member. */
function treesOf(list: Iterable<ConsoleRow>, snapshots: readonly SnapshotInfo[]): Item[] {
  const items = new Map<string, Item>();
  for (const row of list) items.set(row.id, { id: row.id, row, children: [] });
  for (const snapshot of snapshots) items.set(snapshot.snapshotID, { id: snapshot.snapshotID, snapshot, children: [] });
  const roots: Item[] = [];
  for (const item of items.values()) {
    const source = item.snapshot?.sandboxID ?? item.row?.parent ?? item.row?.template;
    const parent = source === undefined || source === item.id ? undefined : items.get(source);
    if (parent === undefined) roots.push(item);
    else parent.children.push(item);
  }
  return roots.filter(({ children, snapshot }) => children.length > 0 || snapshot !== undefined);
}

function place(trees: readonly Item[]): { readonly placed: Placed[]; readonly width: number; readonly height: number } {
  const placed: Placed[] = [];
  let y = 0;
  let depth = 0;
  const add = (item: Item, x: number, parent: Placed | undefined) => {
    if (placed.length >= MOST) return;
    const own: Placed = { item, x, y: y * LINE_PX, parent };
    placed.push(own);
    depth = Math.max(depth, x);
    if (item.children.length === 0) y++;
    for (const child of item.children) add(child, x + 1, own);
  };
  for (const tree of trees) add(tree, 0, undefined);
  return { placed, width: (depth + 1) * COLUMN_PX, height: y * LINE_PX + LINE_PX };
}

export function Forks(): JSX.Element {
  void version.value;
  const [snapshots, setSnapshots] = useState<readonly SnapshotInfo[]>([]);
  const [problem, setProblem] = useState("");
  const mark = events.filter(({ type }) => type === "sandbox.snapshotted" || type.startsWith("snapshot.")).length;
  useEffect(() => {
    pages<SnapshotInfo>("listSnapshots").then(
      (found) => {
        setSnapshots(found);
        setProblem("");
      },
      (error: unknown) => setProblem(messageOf(error)),
    );
  }, [mark]);
  const trees = treesOf(rows.values(), snapshots);
  const { placed, width, height } = place(trees);
  const chosen = placed.find(({ item }) => item.id === query.value.get("at"))?.item;
  return (
    <section class="page fill">
      <header class="page-head">
        <h1>Forks and snapshots</h1>
        <span class="muted">
          {count(placed.length)} in {count(trees.length)} {trees.length === 1 ? "tree" : "trees"}
        </span>
      </header>
      <Problem error={problem} />
      {placed.length === 0 ? (
        <Empty title="No sandbox was forked, and there is no snapshot.">
          <Command text="./svc fork ID --count 3" />
        </Empty>
      ) : null}
      <div class="forks">
        <Scroll label="Tree" kind="tree">
          <div style={{ width: `${width}px`, height: `${height}px` }} class="canvas">
            <svg width={width} height={height} aria-hidden="true">
              {placed.map(({ item, x, y, parent }) =>
                parent === undefined ? null : (
                  <path
                    key={item.id}
                    d={`M${parent.x * COLUMN_PX + BOX_PX} ${parent.y + 13} h10 V${y + 13} H${x * COLUMN_PX}`}
                    fill="none"
                    stroke="currentColor"
                  />
                ),
              )}
            </svg>
            <ul>
              {placed.map(({ item, x, y }) => (
                <li key={item.id} style={{ left: `${x * COLUMN_PX}px`, top: `${y}px` }}>
                  <button
                    type="button"
                    aria-pressed={item.id === chosen?.id}
                    class={item.snapshot === undefined ? "" : "snapshot"}
                    onClick={() => setQuery({ at: item.id === chosen?.id ? "" : item.id })}
                  >
                    {item.row === undefined ? <span class="kind">snapshot</span> : <State state={item.row.state} failed={hasFailed(item.row)} />}
                    <code>{item.snapshot?.names[0] ?? item.id}</code>
                  </button>
                </li>
              ))}
            </ul>
          </div>
        </Scroll>
        {chosen === undefined ? null : <Chosen item={chosen} />}
      </div>
    </section>
  );
}

function Chosen({ item }: { readonly item: Item }): JSX.Element {
  const { row, snapshot, children } = item;
  const ids = below(item);
  return (
    <aside aria-label="Chosen">
      {row === undefined ? (
        <h2>{snapshot?.names[0] ?? item.id}</h2>
      ) : (
        <h2>
          <a href={to(["sandboxes", row.id])}>{row.id}</a>
        </h2>
      )}
      {row === undefined ? null : (
        <>
          <p>
            <State state={row.state} failed={hasFailed(row)} /> {row.state === "running" ? <Left from={row.startedAt} until={row.endAt} /> : null}
          </p>
          {isReadOnly() ? null : (
            <p class="bar">
              {acts
                .filter(({ fits }) => fits(row))
                .map(({ act, label }) => (
                  <button key={act} type="button" class={`small ${act === "delete" ? "danger" : ""}`} onClick={() => perform(act, [row.id])}>
                    {label}
                  </button>
                ))}
            </p>
          )}
        </>
      )}
      {snapshot === undefined ? null : (
        <>
          <p>
            {bytes(snapshot.sizeBytes)} {snapshot.memory ? "with memory" : "of files"}, taken <Ago at={Date.parse(snapshot.createdAt)} />
          </p>
          {isReadOnly() ? null : (
            <p>
              <button type="button" class="small primary" onClick={() => openCreate(snapshot.names[0] ?? snapshot.snapshotID)}>
                Create from it
              </button>
            </p>
          )}
        </>
      )}
      {children.length === 0 ? null : (
        <p>
          {count(ids.length)} below it.{" "}
          {isReadOnly() || ids.length === 0 ? null : (
            <button type="button" class="small danger" onClick={() => perform("delete", ids)}>
              Delete those below
            </button>
          )}
        </p>
      )}
    </aside>
  );
}

/** Returns the sandboxes below an item that still exist. */
function below({ children }: Item): string[] {
  return children.flatMap((child) => [...(child.row === undefined || child.row.state === "ended" ? [] : [child.id]), ...below(child)]);
}
