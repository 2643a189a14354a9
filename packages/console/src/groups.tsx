// Runs: a row for all sandboxes with the same value of a label, failed runs first, with an action that ends a whole run.
import type { ConsoleRow } from "@svc/contract/console.ts";
import type { JSX } from "preact";
import { perform } from "./acts.tsx";
import { count, reasonWords } from "./format.ts";
import { Ago, Empty, Scroll } from "./parts.tsx";
import { query, to } from "./router.ts";
import { filterFor, type Group, groupBy } from "./rows.ts";
import { isReadOnly } from "./session.ts";

/** Further runs are only counted. */
const MOST = 500;

export function Groups({ list, label }: { readonly list: readonly ConsoleRow[]; readonly label: string }): JSX.Element {
  const groups = groupBy(list, label);
  if (groups.length === 0) return <Empty title={`No sandbox here has the metadata ${label}.`} />;
  const members = (group: Group) => list.filter((row) => row.metadata[label] === group.value && row.state !== "ended").map(({ id }) => id);
  return (
    <Scroll label="Runs">
      <table>
        <thead>
          <tr>
            <th scope="col">{label}</th>
            <th scope="col" class="number">
              Running
            </th>
            <th scope="col" class="number">
              Paused
            </th>
            <th scope="col" class="number">
              Failed
            </th>
            <th scope="col">Ended by</th>
            <th scope="col" class="number">
              Newest
            </th>
            <th scope="col">
              <span class="hidden">Acts</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {groups.slice(0, MOST).map((group) => (
            <tr key={group.value}>
              <th scope="row">
                <a href={to(["sandboxes"], { ...Object.fromEntries(query.value), group: "", q: filterFor(label, group.value) })}>{group.value}</a>
              </th>
              <td class="number">{count(group.running)}</td>
              <td class="number">{count(group.paused)}</td>
              <td class={`number ${group.failed > 0 ? "bad" : ""}`}>{count(group.failed)}</td>
              <td>{[...group.reasons].map(([reason, number]) => `${count(number)} ${reasonWords(reason)}`).join(", ")}</td>
              <td class="number">
                <Ago at={group.newest} />
              </td>
              <td>
                {isReadOnly() || group.running + group.paused === 0 ? null : (
                  <button type="button" class="small danger" onClick={() => perform("delete", members(group))}>
                    End the run
                  </button>
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {groups.length > MOST ? <p class="muted">{count(groups.length - MOST)} more; narrow them by the filter.</p> : null}
    </Scroll>
  );
}
