// Rules of tenants name secrets: each sandbox sends the value of its own tenant, and never that of another.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { createSecret } from "@svc/contract/secrets.ts";
import { Sandbox, Secret } from "e2b";
import { startFrontedNodes } from "../src/fronted-nodes.ts";
import { makeHome, removeHome } from "../src/home.ts";
import { needs } from "../src/needs.ts";
import { startNames } from "../src/network-names.ts";
import { publicAddresses, startOutside } from "../src/outside.ts";
import { makeAuthority } from "../src/test-authority.ts";
import { ask, keyFor } from "./tenants.suite.ts";

void test(
  "a rule sends the secret of the sandbox's own tenant, by name and by id, and no other's",
  needs("root", "ip", "nft", "unshare", "runc", "envd", "base"),
  async () => {
    const folder = makeHome();
    const authority = makeAuthority("test authority");
    writeFileSync(join(folder, "ca.pem"), authority.certificate);
    await using _outside = await startOutside({ https: [authority.host("api.example.com")] });
    await using names = await startNames({ "api.example.com": [{ name: "api.example.com", a: publicAddresses[0] }] });
    const flags = [`--network.dns=${names.upstream}`, `--egress.ca_file=${join(folder, "ca.pem")}`];
    await using deployment = await startFrontedNodes({ nodes: 2, node: { flags } });
    const { gateway } = deployment;
    const [acme, globex] = [await keyFor(gateway, "acme", "member"), await keyFor(gateway, "globex", "member")];
    const ofDeployment = await gateway.call(createSecret, { name: "token", value: "of-deployment" });
    const made = await ask(gateway, acme.key, "POST", "/secrets", { name: "token", value: "of-acme" });
    assert.equal(made.status, 201, await made.clone().text());
    const ofAcme = (await made.json()) as { secretID: string };

    async function sent(apiKey: string, asked: string): Promise<string | undefined> {
      const rules = { "api.example.com": [{ transform: { headers: { "X-Secret": Secret.fill(asked) } } }] };
      const sandbox = await Sandbox.create("base", { apiUrl: gateway.url, sandboxUrl: gateway.url, apiKey, network: { rules }, timeoutMs: 600_000 });
      const { stdout } = await sandbox.commands.run("curl -sS https://api.example.com/", { timeoutMs: 120_000 });
      await sandbox.kill();
      return stdout.startsWith("{") ? (JSON.parse(stdout) as { headers: Record<string, string> }).headers["x-secret"] : stdout;
    }
    assert.equal(await sent(gateway.apiKey, "token"), "of-deployment");
    assert.equal(await sent(acme.key, "token"), "of-acme");
    assert.equal(await sent(acme.key, ofAcme.secretID), "of-acme");
    assert.match((await sent(acme.key, ofDeployment.secretID)) ?? "", /was not found/);
    for (const asked of ["token", ofAcme.secretID, ofDeployment.secretID]) assert.match((await sent(globex.key, asked)) ?? "", /was not found/);
    assert.match((await sent(gateway.apiKey, ofAcme.secretID)) ?? "", /was not found/);
    removeHome(folder);
  },
);
