// The first view: all sandboxes, live, with filters in the address, actions on many at once, and runs grouped by a label.
import { computed, signal } from "@preact/signals";
import type { JSX } from "preact";
import { acts, openCreate, perform } from "./acts.tsx";
import { count } from "./format.ts";
import { Grid } from "./grid.tsx";
import { Groups } from "./groups.tsx";
import { Command, Empty, textFrom } from "./parts.tsx";
import { query, setQuery, to } from "./router.ts";
import { counts, isLoaded, labelNames, rows, type SortKey, select, version } from "./rows.ts";
import { isReadOnly } from "./session.ts";

export const chosen = signal<ReadonlySet<string>>(new Set());
/** The sandbox whose row has the focus; shortcuts act on it. */
export const focused = signal("");

const member = (name: string) => query.value.get(name) ?? "";
const list = computed(() => {
  void version.value;
  return select({ text: member("q"), state: member("state") }, (member("sort") || "state") as SortKey, member("reverse") === "yes");
});
function choose(ids: readonly string[], isChosen: boolean): void {
  const next = new Set(chosen.value);
  for (const id of ids) {
    if (isChosen) next.add(id);
    else next.delete(id);
  }
  chosen.value = next;
}

export function Sandboxes(): JSX.Element {
  const sort = (member("sort") || "state") as SortKey;
  const isReversed = member("reverse") === "yes";
  const group = member("group");
  const found = list.value;
  // Acts are for what the person sees: a sandbox that ended, or that the filter hides, is left out.
  const seen = new Set(chosen.value.size === 0 ? [] : found.map(({ id }) => id));
  const picked = [...chosen.value].filter((id) => seen.has(id) && rows.get(id)?.state !== "ended");
  return (
    <section class="page fill">
      <header class="page-head">
        <h1>Sandboxes</h1>
        <States />
        <input
          id="filter"
          type="search"
          placeholder="Filter: words, NAME=VALUE"
          aria-label="Filter sandboxes"
          value={member("q")}
          onInput={(event) => setQuery({ q: textFrom(event) })}
        />
        <select aria-label="Group by" value={group} onChange={(event) => setQuery({ group: textFrom(event) })}>
          <option value="">Not grouped</option>
          {labelNames().map((name) => (
            <option key={name} value={name}>
              by {name}
            </option>
          ))}
        </select>
        {isReadOnly() ? null : (
          <button type="button" class="primary" onClick={() => openCreate()} aria-keyshortcuts="c">
            Create
          </button>
        )}
      </header>
      {picked.length === 0 ? null : (
        <div class="bulk" role="toolbar" aria-label="Acts for the chosen sandboxes">
          <strong>{count(picked.length)} chosen</strong>
          {acts.map(({ act, label }) => (
            <button key={act} type="button" class={act === "delete" ? "danger" : ""} onClick={() => perform(act, picked)}>
              {label}
            </button>
          ))}
          <button type="button" onClick={() => choose([...chosen.value], false)}>
            Clear
          </button>
        </div>
      )}
      {!isLoaded.value ? (
        <Empty title="Reading the list …" />
      ) : rows.size === 0 ? (
        <Empty title="No sandbox runs here, and none ended lately.">
          <Command text="./svc start base -d" />
        </Empty>
      ) : found.length === 0 ? (
        <Empty title="No sandbox matches this filter.">
          <a href={to(["sandboxes"])}>Show all {count(rows.size)}</a>
        </Empty>
      ) : group !== "" ? (
        <Groups list={found} label={group} />
      ) : (
        <Grid
          list={found}
          sort={sort}
          isReversed={isReversed}
          onSort={(key) => setQuery({ sort: key, reverse: key === sort && !isReversed ? "yes" : "" })}
          chosen={chosen.value}
          onChoose={choose}
          onFocus={(id) => {
            focused.value = id;
          }}
        />
      )}
    </section>
  );
}

function States(): JSX.Element {
  void version.value;
  const choices = [
    ["", "All", counts.all],
    ["running", "Running", counts.running],
    ["paused", "Paused", counts.paused],
    ["ended", "Ended", counts.ended],
    ["failed", "Failed", counts.failed],
  ] as const;
  return (
    <fieldset class="choices" aria-label="State">
      {choices.map(([value, label, number]) => (
        <button key={value} type="button" aria-pressed={member("state") === value} onClick={() => setQuery({ state: value })}>
          {label} <span class="count">{count(number)}</span>
        </button>
      ))}
    </fieldset>
  );
}
