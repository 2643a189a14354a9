// The messages of the networks about a host: other firewalls, missing rights, no free addresses.
import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { mkdirSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { needs } from "@svc/harness/needs.ts";
import type { NetworkCheck } from "../src/network/checks.ts";

const programPath = (name: string): string => execFileSync("which", [name], { encoding: "utf8" }).trim();

/** Runs TypeScript in a separate network namespace, where it simulates other firewalls without changing this host. */
async function apart(program: string, env: NodeJS.ProcessEnv = {}): Promise<string> {
  const argv = ["--net", process.execPath, "--disable-warning=ExperimentalWarning", "--input-type=module-typescript", "-e", program];
  const { stdout } = await promisify(execFile)(programPath("unshare"), argv, {
    cwd: fileURLToPath(new URL(".", import.meta.url)),
    env: { ...process.env, ...env },
  });
  return stdout;
}

const imports = `
  import { openLog } from "@svc/kit/log.ts";
  import { openSpawner } from "@svc/kit/spawn.ts";
  import { networkChecks } from "@svc/sandbox/network/checks.ts";
  import { openNetworks } from "@svc/sandbox/network/open-networks.ts";
  const spawner = openSpawner();
`;

void test("a firewall chain that drops sandbox traffic is named with its fix, and the fix works", needs("root", "ip", "nft", "unshare"), async () => {
  const output = await apart(`${imports}
    const otherFirewalls = async () => (await networkChecks({ spawner })).find(({ name }) => name === "other firewalls");
    const reported = [await otherFirewalls()];
    await spawner.check(["nft", "-f", "-"], { input: "add table ip filter; add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }" });
    reported.push(await otherFirewalls());
    await spawner.check(["sh", "-c", reported[1].fix]);
    reported.push(await otherFirewalls());
    console.log(JSON.stringify(reported));
    process.exit(0);`);
  const [before, blocked, fixed] = JSON.parse(output) as NetworkCheck[];
  assert.equal(before?.works, true);
  assert.equal(blocked?.works, false);
  assert.match(blocked?.says ?? "", /ip filter FORWARD/);
  assert.equal(fixed?.works, true);
});

void test("every network check passes on a host that can run networks, and leaves nothing", needs("root", "ip", "nft", "unshare"), async () => {
  const output = await apart(`${imports}
    const checks = await networkChecks({ spawner });
    const left = await spawner.check(["sh", "-c", "nft list tables; ip netns | grep svcd- || true"]);
    console.log(JSON.stringify({ checks, left }));
    process.exit(0);`);
  const { checks, left } = JSON.parse(output) as { checks: NetworkCheck[]; left: string };
  assert.deepEqual(
    checks.filter(({ works }) => !works),
    [],
  );
  assert.ok(checks.length >= 7);
  assert.equal(left, "");
});

void test("without a program that reads denied packets they are still denied, and the log says so once", needs("root", "ip", "nft", "unshare"), async () => {
  const home = makeHome();
  const programs = join(home, "programs");
  mkdirSync(programs);
  for (const name of ["ip", "nft", "sh", "setpriv"]) symlinkSync(programPath(name), join(programs, name));
  const output = await apart(
    `${imports}
    import { probe } from "./network-fixture.ts";
    import { openEgress } from "../src/egress/policy.ts";
    const said = [];
    const log = { ...openLog("test", "silent"), info() {}, warn: (fields, text) => said.push([text, fields.fix]), error: (fields, text) => said.push([text]) };
    await spawner.check(["sh", "-c", "ip link set lo up; ip route add default dev lo"]);
    const networks = await openNetworks({ home: ${JSON.stringify(home)}, spawner, log, poolSize: 0, onDenied() {} });
    const slot = await networks.attach({ ...openEgress, allowInternet: false });
    const outcomes = await probe(slot, [{ try: "tcp", host: "1.1.1.1", port: 80 }]);
    await networks.close({ everything: true });
    const check = (await networkChecks({ spawner })).find(({ name }) => name === "network log");
    console.log(JSON.stringify({ said, outcomes, check }));
    process.exit(0);`,
    { PATH: programs },
  );
  removeHome(home);
  const { said, outcomes, check } = JSON.parse(output) as { said: string[][]; outcomes: string[]; check: NetworkCheck };
  assert.deepEqual(outcomes, ["ECONNREFUSED"]);
  const [reported, ...more] = said.filter(([text]) => text?.includes("cannot be logged"));
  assert.match(reported?.[1] ?? "", /tcpdump/);
  assert.deepEqual(more, []);
  assert.equal(check.works, false);
  assert.match(check.fix, /tcpdump/);
});

void test("without root, and without a free range, networks say what is missing", needs("root", "ip", "nft", "unshare"), async () => {
  const home = makeHome();
  const output = await apart(`${imports}
    const attempt = (options) => openNetworks({ home: ${JSON.stringify(home)}, spawner, log: openLog("test", "fatal"), ...options }).then(() => "opened", (failure) => failure.name + " " + failure.message);
    await spawner.check(["sh", "-c", "ip link set lo up; ip route add 10.10.0.0/16 dev lo"]);
    const reported = [await attempt({ subnet: "10.10.4.0/22" }), await attempt({ subnet: "10.10.4.0/24" }), await attempt({ subnet: "10.10.4.1/22" })];
    process.setuid(65534);
    reported.push(await attempt({}));
    console.log(JSON.stringify(reported));
    process.exit(0);`);
  removeHome(home);
  const [occupied, small, odd, unprivileged] = JSON.parse(output) as string[];
  assert.match(occupied ?? "", /^HOST_UNSUITABLE no free \/22 is left in 10\.10\.4\.0\/22/);
  assert.match(small ?? "", /^SETTING_INVALID .*too small/);
  assert.match(odd ?? "", /^SETTING_INVALID .*"10\.10\.4\.1\/22" is not an IPv4 block/);
  assert.match(unprivileged ?? "", /^HOST_UNSUITABLE .*root/);
});
