// The watch of a firewall table: it reports the table's deletion immediately, ignores other tables, and is restarted when it dies.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { suite, test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { until } from "@svc/harness/until.ts";
import { openLog } from "@svc/kit/log.ts";
import { watchTable } from "../src/network/table-watch.ts";

const table = `svc_w${process.pid % 100_000}`;
const nft = (...argv: string[]): void => void execFileSync("nft", argv, { stdio: "pipe" });

/** Returns the monitors of this process only, since other nodes of this machine have their own. */
function monitors(): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
        return Number(stat.slice(stat.lastIndexOf(")") + 4).split(" ")[0]) === process.pid && readFileSync(`/proc/${pid}/comm`, "latin1") === "nft\n";
      } catch {
        return false;
      }
    });
}

suite("the watch of a firewall table", needs("root", "nft", "setpriv"), () => {
  void test("reports each deletion of its own table, and restarts when its program dies", async () => {
    let deletions = 0;
    const watch = await watchTable({ table, log: openLog("network-test", "fatal"), onDeleted: () => deletions++ });
    try {
      const deleteAndSee = async (): Promise<void> => {
        const before = deletions;
        // The program subscribes some time after its start.
        await until("a deletion is reported", () => {
          nft("add", "table", "inet", table);
          nft("delete", "table", "inet", table);
          return deletions > before ? true : undefined;
        });
      };
      await deleteAndSee();
      const seen = deletions;
      nft("add", "table", "inet", `${table}x`);
      nft("delete", "table", "inet", `${table}x`);
      await deleteAndSee();
      assert.ok(deletions > seen);
      const [monitor = 0] = monitors();
      assert.ok(monitor > 0);
      const before = deletions;
      process.kill(monitor, "SIGKILL");
      await until("the watch restarts", () => (monitors().some((pid) => pid !== monitor) && deletions > before ? true : undefined));
      await deleteAndSee();
    } finally {
      watch.close();
    }
    await until("its program is gone", () => (monitors().length === 0 ? true : undefined));
  });
});
