// `svc up` with a server that crashes repeatedly: the backoff alone takes a quarter of a minute.
import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import { isAlive } from "../src/access/up-state.ts";
import { openHome } from "./up-home.ts";

void test("a server that cannot be restarted is retried slowly, and the others keep running", async () => {
  await using it = openHome();
  await it.svc("up", "-d", "--without", "node");
  const port = Number(new URL(it.server("indexer").url).port);
  await it.svc("down");
  await it.svc("up", "-d", "--without", "node", `--indexer.listen=127.0.0.1:${port}`);
  process.kill(it.server("indexer").pid, "SIGKILL");
  // The port is occupied before the supervisor restarts the server.
  const taken = createServer().listen(port, "127.0.0.1").unref();
  await once(taken, "listening");
  const log = () => readFileSync(join(it.home, "logs", "up.log"), "utf8");
  for (const delayMs of [500, 1000, 2000, 4000, 8000])
    await until(`a wait of ${delayMs} ms`, () => (log().includes(`starting it again in ${delayMs} ms`) ? true : undefined));
  await until("the supervisor to go slowly", () => (/^indexer cannot start \(127.*in use.*6 times in a row/m.test(log()) ? true : undefined));
  assert.match(log(), /starting it again in 60000 ms/);
  assert.ok(isAlive(it.state()));
  assert.equal((await fetch(`${it.server("metadata").url}/metrics`)).status, 200);
  taken.close();
});
