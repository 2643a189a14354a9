// Backup and restore of a home with the records of 10,000 sandboxes, each with a checkpoint, and a store master's log of a million keys.
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { runBackup } from "../packages/harness/src/backup.ts";
import { makeBackedUpHome } from "../packages/sandbox/test/backup-fixture.ts";
import { startMaster } from "../packages/store/test/master.ts";
import { progress, type Row, report } from "./report.ts";
import { buildRaw, Driven, fill } from "./store-masters.ts";

const SANDBOXES = Number(process.env["SVC_BENCH_SANDBOXES"] ?? 10_000);
const KEYS = Number(process.env["SVC_BENCH_KEYS"] ?? 1_000_000);
const ASKED_SECONDS = 60;

const folder = mkdtempSync(join(tmpdir(), "svc-bench-"));
const [home, target, back] = ["home", "backup", "back"].map((name) => join(folder, name)) as [string, string, string];
const rows: Row[] = [];
const raw: Record<string, unknown> = {};

async function timed(what: string, run: () => ReturnType<typeof runBackup>): Promise<number> {
  const begun = performance.now();
  const { code, stderr } = await run();
  if (code !== 0) throw new Error(`${what} ended with ${code}: ${stderr}`);
  return (performance.now() - begun) / 1000;
}

try {
  progress(`making the records of ${SANDBOXES} sandboxes`);
  await makeBackedUpHome(home, 1 / 64, SANDBOXES);
  progress(`filling a master with ${KEYS} keys`);
  await using master = await startMaster({ home, flags: ["--client_ttl=600s", "--store.suspect_after_ms=600000"], level: "info" });
  const driven = await Driven.mount(
    "ours",
    { rpcPort: master.rpcPort, httpPort: Number(new URL(master.url).port), pid: master.pid },
    buildRaw(folder),
    1n << 44n,
  );
  await fill(driven, folder, "many", KEYS);
  driven.close();
  progress("backing up, verifying and restoring");
  const created = await timed("create", () => runBackup(["create", target, `--home=${home}`]));
  const verified = await timed("verify", () => runBackup(["verify", target]));
  await master.kill();
  rmSync(home, { recursive: true });
  spawnSync("sync");
  const restored = await timed("restore", () => runBackup(["restore", target, `--home=${back}`]));
  const db = new DatabaseSync(join(back, "sandboxes.db"), { readOnly: true });
  const found = Number(db.prepare("SELECT count(*) AS n FROM sandboxes").get()?.["n"]);
  db.close();
  if (found !== SANDBOXES) throw new Error(`${found} of ${SANDBOXES} records came back`);
  await using again = await startMaster({ home: back, level: "info" });
  const recovery = JSON.parse(/"recovery":(\{[^}]*\})/.exec(again.log())?.[1] ?? "{}") as { objects?: number; ms?: number };
  if (recovery.objects !== KEYS) throw new Error(`${recovery.objects} of ${KEYS} keys came back`);
  const note = `${SANDBOXES} sandboxes' records and checkpoints, ${KEYS} keys`;
  rows.push({ what: "create, while the master runs", value: created, unit: "s", note });
  rows.push({ what: "verify", value: verified, unit: "s" });
  rows.push({
    what: "restore, all found",
    value: restored,
    unit: "s",
    goal: { atMost: ASKED_SECONDS },
    note: `the master then serves after ${recovery.ms} ms`,
  });
  raw["backup"] = { created, verified, restored, recovery };
  report("backup", rows, raw);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
