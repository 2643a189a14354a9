// The doctor's findings as text for a terminal.
import type { RuntimeReport } from "../runtime/runtime.ts";
import type { Check } from "./check.ts";

export type Driver = RuntimeReport & { /** The number of idle sandboxes that fit into the free memory. */ readonly density: number };

export type Diagnosis = { readonly checks: readonly Check[]; readonly drivers: readonly Driver[]; readonly canRun: boolean };

const NAME_COLUMNS = 20;

export function renderDiagnosis({ checks, drivers, canRun }: Diagnosis, columns: number): string {
  const lines: string[] = ["This host", ""];
  for (const { name, works, says, follows, fix } of checks) {
    lines.push(...entry(works, name, says, columns));
    if (follows !== "") lines.push(...detail("so", follows, columns));
    if (fix !== "") lines.push(...detail("fix", fix, columns));
  }
  lines.push("", "Drivers", "");
  for (const { runtime, usable, isolation, pauseWithMemory, pauseWithFiles, limits, diskLimit, network, idleMB, density } of drivers) {
    lines.push(...entry(usable.works, runtime, usable.says, columns));
    if (!usable.works) {
      if (usable.fix !== undefined) lines.push(...detail("fix", usable.fix, columns));
      continue;
    }
    lines.push(...detail("isolation", isolation, columns));
    const capabilities = { "pause with memory": pauseWithMemory, "pause with files": pauseWithFiles, limits, disk: diskLimit, network };
    for (const [what, { works, says, fix }] of Object.entries(capabilities)) {
      lines.push(...detail(what, works || fix === undefined ? says : `${says} (${fix})`, columns));
    }
    lines.push(...detail("density", `${idleMB} MB for an idle sandbox; about ${density} fit into the memory that is free`, columns));
  }
  const best = drivers.find(({ usable }) => usable.works);
  lines.push("", canRun && best !== undefined ? `Sandboxes can run here; the node would use ${best.runtime}.` : "No sandbox can run here.", "");
  return lines.join("\n");
}

function entry(works: boolean, name: string, says: string, columns: number): string[] {
  return wrapped(`${works ? "ok  " : "FAIL"} ${name.padEnd(NAME_COLUMNS)} `, says, columns);
}

function detail(label: string, text: string, columns: number): string[] {
  return wrapped(`     ${"".padEnd(NAME_COLUMNS)} ${label}: `, text, columns);
}

/** Wraps text at words; further lines are indented to the first. */
function wrapped(head: string, text: string, columns: number): string[] {
  const width = Math.max(columns - head.length, 30);
  const rows: string[] = [];
  for (const word of text.replaceAll("\n", " ").split(" ")) {
    const last = rows.at(-1);
    if (last !== undefined && last.length + 1 + word.length <= width) rows[rows.length - 1] = `${last} ${word}`;
    else rows.push(word);
  }
  return rows.map((row, index) => (index === 0 ? head : " ".repeat(head.length)) + row);
}
