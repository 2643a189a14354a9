// The commands of docs/store-operations.md, executed as printed, except for free ports and separate homes.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { startEtcd } from "@svc/harness/etcd.ts";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { needs } from "@svc/harness/needs.ts";
import { freePorts } from "@svc/harness/ports.ts";
import { ROOT, runGuide } from "@svc/harness/run-guide.ts";

void test(
  "the commands of docs/store-operations.md start two masters, take a service out, hand the lead over, make a backup and restore it as they stand",
  needs("curl"),
  async () => {
    const text = readFileSync(`${ROOT}/docs/store-operations.md`, "utf8");
    const home = makeHome();
    await using etcd = await startEtcd();
    const [ada, bob, adaRpc, bobRpc, service, second] = await freePorts(6);
    const commands = [...text.matchAll(/^```bash\n(.*?)^```$/gms)]
      .map(([, code = ""]) => code)
      .join("\n")
      .replaceAll("127.0.0.1:2379", etcd.endpoints[0]?.replace("http://", "") ?? "")
      .replaceAll("/tmp/", `${home}/`)
      .replaceAll(":9003", `:${ada}`)
      .replaceAll(":9004", `:${bob}`)
      .replaceAll("50051", String(adaRpc))
      .replaceAll("50052", String(bobRpc))
      .replaceAll("localhost:8080", `localhost:${service}`)
      .replaceAll("8090", String(second));
    const { code, said } = await runGuide(commands, { SVC_HOME: home, SVC_STORE_SERVICE_PORT: String(service) });
    removeHome(home);
    assert.equal(code, 0, said.slice(-6000));
    assert.match(said, /"name": "bob"/);
    assert.match(said, /"role": "leader"/);
    assert.equal(said.match(/^some bytes$/gm)?.length, 2, "read from the second service, and after the restore");
  },
);
