// The commands of the guides of the store, executed as printed, except for free ports and a separate home.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { needs } from "@svc/harness/needs.ts";
import { freePorts } from "@svc/harness/ports.ts";
import { ROOT, runGuide } from "@svc/harness/run-guide.ts";

/** Returns the bash and python blocks in order. */
function script(): string {
  const text = ["docs/store.md", "docs/store-reference.md"].map((guide) => readFileSync(`${ROOT}/${guide}`, "utf8")).join("\n");
  const blocks = [...text.matchAll(/^```(bash|python)\n(.*?)^```$/gms)];
  return blocks.map(([, language, code = ""]) => (language === "python" ? `python3 -W ignore - <<'END_OF_BLOCK'\n${code}END_OF_BLOCK` : code)).join("\n");
}

void test("the commands of the guides start, fill and show a store unchanged", needs("curl", "python-clients"), async () => {
  const home = makeHome();
  const [http, rpc, service] = await freePorts(3);
  const commands = script()
    .replaceAll("localhost:9003", `localhost:${http}`)
    .replaceAll("127.0.0.1:50051", `127.0.0.1:${rpc}`)
    .replaceAll("localhost:8080", `localhost:${service}`);
  const { code, said } = await runGuide(commands, {
    SVC_HOME: home,
    SVC_STORE_LISTEN: `127.0.0.1:${http}`,
    SVC_STORE_RPC_PORT: String(rpc),
    SVC_STORE_RPC_ADDRESS: "127.0.0.1",
    SVC_STORE_SERVICE_HOST: "127.0.0.1",
    SVC_STORE_SERVICE_PORT: String(service),
    PYTHONPATH: process.env["SVC_PYTHON_CLIENTS"],
    MC_FORCE_TCP: "1",
    MC_TCP_BIND_ADDRESS: "127.0.0.1",
  });
  removeHome(home);
  assert.equal(code, 0, said.slice(-6000));
  assert.match(said, /"total_segments":2/);
  assert.match(said, /(^|\})some bytes/m);
  assert.match(said, /\{"exists":true\}/);
  assert.match(said, /KEY +SIZE +HOLDERS\nnotes/);
});
