// Secrets of a deployment: set through a gateway, used on every node, rotated and deleted while in use, and over nodes that were away.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { createSandbox } from "@svc/contract/sandbox.ts";
import { getEgressAuthority, getSecret, listSecrets } from "@svc/contract/secrets.ts";
import { Sandbox, Secret, SecretNotFoundError } from "e2b";
import { allUp, startFrontedNodes } from "../src/fronted-nodes.ts";
import { makeHome, removeHome } from "../src/home.ts";
import { needs } from "../src/needs.ts";
import { startNames } from "../src/network-names.ts";
import { publicAddresses, startOutside } from "../src/outside.ts";
import { makeAuthority } from "../src/test-authority.ts";
import { until } from "../src/until.ts";

const FIRST = "first-value-that-no-file-may-have";
const SECOND = "second-value-that-no-file-may-have";
const connectionTo = ({ url, apiKey }: { url: string; apiKey: string }) => ({ apiUrl: url, sandboxUrl: url, apiKey });

void test(
  "a secret that is set at a gateway serves sandboxes of every node, is replaced and deleted for all of them at once, and is in no file",
  needs("root", "ip", "nft", "unshare", "runc", "envd", "base"),
  async () => {
    const folder = makeHome();
    const authority = makeAuthority("test authority");
    writeFileSync(join(folder, "ca.pem"), authority.certificate);
    await using _outside = await startOutside({ https: [authority.host("api.example.com")] });
    await using names = await startNames({ "api.example.com": [{ name: "api.example.com", a: publicAddresses[0] }] });
    const flags = [`--network.dns=${names.upstream}`, `--egress.ca_file=${join(folder, "ca.pem")}`];
    await using deployment = await startFrontedNodes({ nodes: 2, gateways: 2, node: { flags } });
    const { nodes, gateways } = deployment;
    const [one, two] = gateways.map(connectionTo) as [ReturnType<typeof connectionTo>, ReturnType<typeof connectionTo>];
    const info = await Secret.create("Api-Key", FIRST, { ...one, metadata: { team: "forecast" } });
    assert.deepEqual(
      [info.name, info.version, (await Secret.getInfo("api-key", two)).metadata],
      ["api-key", 1, { team: "forecast" }],
      "the other gateway has it, too",
    );
    await assert.rejects(Secret.create("api-key", "x", two), /exists already/);

    const rules = { "api.example.com": [{ transform: { headers: { "X-Secret": Secret.fill("api-key") } } }] };
    const first = await Sandbox.create("base", { ...one, network: { rules }, timeoutMs: 600_000 });
    // The other one is made at the node that does not have the first.
    const homeOf = async (id: string) => {
      const found = await Promise.all(nodes.map(async ({ url, apiKey }) => (await fetch(`${url}/sandboxes/${id}`, { headers: { "x-api-key": apiKey } })).ok));
      return nodes[found.indexOf(true)];
    };
    const holder = await homeOf(first.sandboxId);
    const second = nodes.find((node) => node !== holder);
    assert.ok(second !== undefined && holder !== undefined);
    const made = await second.call(createSandbox, { templateID: "base", timeout: 600, network: { rules } });
    const sandboxes = [first, await Sandbox.connect(made.sandboxID, two)];
    const sent = async () =>
      Promise.all(
        sandboxes.map(async (sandbox) => {
          const { stdout } = await sandbox.commands.run("curl -sS https://api.example.com/", { timeoutMs: 120_000 });
          return stdout.startsWith("{") ? (JSON.parse(stdout) as { headers: Record<string, string> }).headers["x-secret"] : stdout;
        }),
      );
    assert.deepEqual(await sent(), [FIRST, FIRST]);
    assert.equal((await Secret.update("api-key", SECOND, two)).version, 2);
    assert.deepEqual(await sent(), [SECOND, SECOND]);

    const folders = [...nodes, ...gateways].map(({ home }) => home);
    const files = execFileSync("find", [...folders, "-xdev", "-type", "f", "-print0"], { encoding: "utf8", maxBuffer: 1 << 28 });
    for (const value of [FIRST, SECOND]) {
      assert.equal(spawnSync("xargs", ["-0", "grep", "-laF", value], { input: files, encoding: "utf8" }).stdout, "");
      for (const each of [...nodes, ...gateways]) assert.ok(!each.log().includes(value));
    }
    assert.equal(await Secret.destroy("api-key", one), true);
    for (const text of await sent()) assert.match(text ?? "", /svc: the rules for api.example.com cannot be applied: .* secret 'api-key' was not found/);
    for (const node of nodes) await assert.rejects(node.call(getSecret, { secretID: "api-key" }), { name: "SECRET_NOT_FOUND" });
    await assert.rejects(Secret.getInfo("api-key", two), SecretNotFoundError);
    await Promise.all(sandboxes.map((sandbox) => sandbox.kill()));
    removeHome(folder);
  },
);

void test("a node that was away gets the secrets that changed meanwhile, and brings no deleted one back", needs("root", "runc", "envd", "base"), async () => {
  await using deployment = await startFrontedNodes({ nodes: 2 });
  const { gateway, nodes } = deployment;
  const at = connectionTo(gateway);
  const [away, up] = nodes as [(typeof nodes)[0], (typeof nodes)[0]];
  const big = "v".repeat(16_000);
  await Promise.all(Array.from({ length: 12 }, (_, index) => Secret.create(`many-${String(index).padStart(2, "0")}`, big, at)));
  for (const name of ["kept", "rotated", "deleted"]) await Secret.create(name, `${name} 1`, at);
  await away.kill("SIGKILL");
  await until("a lost node", async () => ((await gateway.callForAnswer(listSecrets, {})).headers.get("svc-missing-nodes") === null ? undefined : true));
  assert.equal((await Secret.update("rotated", "rotated 2", at)).version, 2);
  assert.equal(await Secret.destroy("deleted", at), true);
  await Secret.create("new", "new 1", at);
  // A gateway that restarts learns all of it from the nodes.
  await gateway.restart("SIGKILL");
  await away.start();
  await allUp(gateway);
  const expected = ["kept 1", ...Array.from({ length: 12 }, (_, index) => `many-${String(index).padStart(2, "0")} 1`), "new 1", "rotated 2"];
  const listed = async (node: (typeof nodes)[0]) => (await node.call(listSecrets, {})).map(({ name, currentVersion }) => `${name} ${currentVersion}`);
  await until("the changes on both nodes", async () =>
    JSON.stringify(await Promise.all([listed(away), listed(up)])) === JSON.stringify([expected, expected]) ? true : undefined,
  );
  await Secret.create("deleted", "again", at);
  await deployment.restart("SIGKILL");
  assert.deepEqual((await Secret.list(at).nextItems()).map(({ name }) => name).slice(0, 2), ["deleted", "kept"], "a restart of everything loses nothing");
  const page = Secret.list({ ...at, limit: 2 });
  const found: string[] = [];
  while (page.hasNext) found.push(...(await page.nextItems()).map(({ name }) => name));
  assert.equal(found.length, expected.length + 1);
  const keysOf = async ({ url }: { url: string }) => {
    const { keys } = (await (await fetch(`${url}/.well-known/jwks.json`)).json()) as { keys: { kid: string }[] };
    return keys.map(({ kid }) => kid).toSorted();
  };
  assert.deepEqual(await keysOf(gateway), (await Promise.all(nodes.map(keysOf))).flat().toSorted(), "identity tokens of every node can be checked");
  await assert.rejects(gateway.call(getEgressAuthority, {}), /different authorities for egress, because their deployment secrets differ/);
});
