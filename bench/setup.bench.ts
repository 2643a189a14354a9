// From a fresh Debian root to the first program in gVisor: with set-up from an empty cache, and with an import from another machine.
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import { join } from "node:path";
import { FreshRoot, type Said } from "../test/fresh-root.ts";
import { median, type Row, report } from "./report.ts";

const ROUNDS = Number(process.env.SVC_BENCH_ROUNDS ?? 3);
const root = join(import.meta.dirname, "..");
/** The steps of `svc up`, without those only tests and benches need. */
const STEPS_OF_A_RUN = /^readonly run_steps="(.*)"$/m.exec(readFileSync(join(root, "setup/paths.sh"), "utf8"))?.[1]?.split(" ") ?? [];

type Round = { readonly tookSeconds: number; readonly steps: Readonly<Record<string, number>>; readonly load: number };

/** Runs set-up and one program in gVisor; both must succeed. */
async function timed(fresh: FreshRoot, ...words: readonly string[]): Promise<Round> {
  const setUp = await fresh.run(["/opt/svc/svc", "setup", ...words], { env: { SVC_SETUP_PURPOSE: "run" } });
  if (setUp.code !== 0) throw new Error(`./svc setup ${words.join(" ")} ended with ${setUp.code}:\n${setUp.output}`);
  const first = await fresh.runInGvisor("6*7");
  if (first.output.trim() !== "42") throw new Error(`the program in gVisor said ${first.output}`);
  return { tookSeconds: (setUp.tookMs + first.tookMs) / 1000, steps: stepsOf(setUp), load: loadavg()[0] ?? Number.NaN };
}

function stepsOf(said: Said): Record<string, number> {
  return Object.fromEntries([...said.output.matchAll(/^ {4}(\S+) +([\d.]+) s/gm)].map(([, step, seconds]) => [step, Number(seconds)]));
}

const made: Round[] = [];
const imported: Round[] = [];
for (let round = 0; round < ROUNDS; round += 1) {
  {
    using fresh = new FreshRoot();
    made.push(await timed(fresh, "--only", ...STEPS_OF_A_RUN));
  }
  using fresh = new FreshRoot();
  execFileSync(join(root, "svc"), ["setup", "--export", join(fresh.root, "opt/export.tar")], { stdio: ["ignore", "ignore", "inherit"] });
  imported.push(await timed(fresh, "--import", "/opt/export.tar"));
}

const row = (what: string, rounds: readonly Round[], atMost: number): Row => {
  const times = rounds.map((each) => each.tookSeconds);
  return { what, value: median(times), unit: "s", goal: { atMost }, samples: times.length, note: times.map((time) => time.toFixed(1)).join(", ") };
};
const slowest = made.toSorted((a, b) => b.tookSeconds - a.tookSeconds)[0]?.steps ?? {};
const rows: Row[] = [
  row(`set-up from an empty cache to the first sandbox, ${cpus().length} processors`, made, 190),
  row("import of an export to the first sandbox", imported, 20),
  ...Object.entries(slowest).map(([step, seconds]): Row => ({ what: `step ${step} of the slowest round`, value: seconds, unit: "s" })),
];
report("setup", rows, { made, imported });
