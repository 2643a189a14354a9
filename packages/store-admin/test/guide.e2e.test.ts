// The commands of docs/store-admin.md work unchanged, except that the test chooses free ports and its own home.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { needs } from "@svc/harness/needs.ts";
import { freePorts } from "@svc/harness/ports.ts";
import { ROOT, runGuide } from "@svc/harness/run-guide.ts";

const script = () => [...readFileSync(`${ROOT}/docs/store-admin.md`, "utf8").matchAll(/^```bash\n(.*?)^```$/gms)].map(([, code = ""]) => code).join("\n");

void test("the commands of docs/store-admin.md copy a key to another service unchanged", needs("curl"), async () => {
  const home = makeHome();
  const [http, rpc, first, second, admin] = await freePorts(5);
  const commands = script()
    .replaceAll("localhost:9003", `localhost:${http}`)
    .replaceAll("localhost:18080", `localhost:${admin}`)
    .replaceAll(/(localhost:|--port )8080/g, `$1${first}`)
    .replaceAll(/(localhost:|--port )8090/g, `$1${second}`);
  const { code, said } = await runGuide(commands, {
    SVC_HOME: home,
    SVC_STORE_LISTEN: `127.0.0.1:${http}`,
    SVC_STORE_RPC_PORT: String(rpc),
    SVC_STORE_RPC_ADDRESS: "127.0.0.1",
    SVC_STORE_ADMIN_LISTEN: `127.0.0.1:${admin}`,
  });
  removeHome(home);
  assert.equal(code, 0, said.slice(-6000));
  assert.match(said, /HOLDER +MEDIUM +ADDRESS.*\n127\.0\.0\.1:\d+ .*\n127\.0\.0\.1:\d+ /);
  assert.match(said, /route-migration-2 +move +notes\/2 .* succeeded +1 of 6/);
  assert.match(said, /"count":1,"tasks":\[\{"task_id":"route-migration-1"/);
});
