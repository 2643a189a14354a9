// A slot under a real gVisor sandbox, whose kernel has its own network stack.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { needs } from "@svc/harness/needs.ts";
import { startNames } from "@svc/harness/network-names.ts";
import { publicAddresses, startOutside } from "@svc/harness/outside.ts";
import { until } from "@svc/harness/until.ts";
import { openEgress } from "../src/egress/policy.ts";
import { type Denial, denialText } from "../src/network/denial.ts";
import type { NetworkSlot } from "../src/network/networks.ts";
import { type Fixture, open, openFixture, probeFile } from "./network-fixture.ts";
import type { Probe } from "./network-probe.ts";

const [one, eight] = publicAddresses;

/** Runs a program of the host's root file system inside gVisor, on the slot's network, as root that may send raw packets; returns its output. */
async function inGvisor(fixture: Fixture, slot: NetworkSlot, args: readonly string[]): Promise<string> {
  const bundle = join(fixture.home, `bundle-${slot.index}`);
  mkdirSync(bundle, { recursive: true });
  const raw = ["CAP_NET_RAW"];
  writeFileSync(
    join(bundle, "config.json"),
    JSON.stringify({
      ociVersion: "1.0.2",
      process: { user: { uid: 0, gid: 0 }, args, env: ["PATH=/usr/bin:/bin"], cwd: "/", capabilities: { bounding: raw, effective: raw, permitted: raw } },
      root: { path: "/", readonly: true },
      mounts: [{ destination: "/proc", type: "proc", source: "proc" }],
      linux: { namespaces: [...["pid", "ipc", "uts", "mount"].map((type) => ({ type })), { type: "network", path: slot.netnsPath }] },
    }),
  );
  const runsc = [`--root=${join(fixture.home, "runsc")}`, "--network=sandbox", "--net-raw", "--overlay2=none", "--ignore-cgroups", "--host-settings=ignore"];
  const run = promisify(execFile);
  await fixture.networks.restoreGuestSide(slot); // an earlier program's runsc removed the address
  const { stdout } = await run(process.env["SVC_RUNSC"] ?? "", [...runsc, "run", "-bundle", bundle, `nettest${process.pid}`]).finally(() =>
    // runsc leaves an empty namespace mounted in its folder.
    run("umount", [join(fixture.home, "runsc/null-netns")]).catch(() => {}),
  );
  return stdout;
}

async function probes(fixture: Fixture, slot: NetworkSlot, tries: readonly Probe[]): Promise<string[]> {
  const stdout = await inGvisor(fixture, slot, [process.execPath, "--disable-warning=ExperimentalWarning", probeFile, JSON.stringify(tries)]);
  return JSON.parse(stdout.trim().split("\n").at(-1) ?? "") as string[];
}

void test("gVisor's own network stack uses a sandbox's address, route, DNS and rules", needs("root", "ip", "nft", "unshare", "runsc"), async () => {
  await using outside = await startOutside();
  await using fixture = await openFixture({ dns: { upstreams: [outside.dnsServer] } });
  const slot = await fixture.networks.attach(open);
  const outcomes = await probes(fixture, slot, [
    { try: "tcp", host: one, port: 80 },
    { try: "udp", host: eight, port: 7 },
    { try: "resolve", server: slot.gatewayAddress, name: "www.example.com" },
    { try: "resolve", server: slot.gatewayAddress, name: "long.example.com" },
    { try: "tcp", host: "169.254.169.254", port: 80 },
    { try: "tcp", host: slot.gatewayAddress, port: 22 },
    { try: "tcp", host: "2001:db8::1", port: 80 },
  ]);
  assert.deepEqual(outcomes, ["connected", "answered hello", "8.8.8.8", "8.8.8.8", "ECONNREFUSED", "ECONNREFUSED", "ENETUNREACH"]);
});

/** Sends a UDP packet with hand-written headers to 8.8.8.8:7 from each address in its arguments. */
const spoofing = `
import socket, struct, sys
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
for source in sys.argv[1:]:
    udp = struct.pack("!HHHH", 4000, 7, 13, 0) + b"spoof"
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0, socket.inet_aton(source), socket.inet_aton("${eight}"))
    raw.sendto(ip + udp, ("${eight}", 0))
`;

void test("egress rules apply inside gVisor to domains, metadata in every spelling and raw packets, and denials are reported", {
  ...needs("root", "ip", "nft", "unshare", "runsc", "tcpdump", "python3"),
}, async () => {
  await using outside = await startOutside();
  await using names = await startNames({ "www.example.com": [{ name: "www.example.com", a: one }] });
  const denials: Denial[] = [];
  await using fixture = await openFixture({ dns: { upstreams: [names.upstream] }, onDenied: (denial) => denials.push(denial) });
  const sibling = await fixture.networks.attach(open);
  const slot = await fixture.networks.attach({ ...openEgress, allowOut: ["*.example.com"], denyOut: ["0.0.0.0/0"] });
  const server = slot.gatewayAddress;
  const spellings = ["169.254.169.254", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "::ffff:169.254.169.254"];
  const outcomes = await probes(fixture, slot, [
    { try: "visit", server, name: "www.example.com", port: 80 },
    { try: "resolve", server, name: "www.example.org" },
    { try: "tcp", host: eight, port: 443 },
    { try: "udp", host: eight, port: 7 },
    ...spellings.map((host) => ({ try: "tcp", host, port: 80 }) as const),
  ]);
  assert.deepEqual(outcomes, ["connected", "EREFUSED", "ECONNREFUSED", "ECONNREFUSED", ...spellings.map(() => "ECONNREFUSED")]);

  await outside.seen();
  await inGvisor(fixture, slot, ["/usr/bin/python3", "-c", spoofing, "203.0.113.5", sibling.guestAddress]);
  const spoofed = await until("both raw packets are reported", () => {
    const reported = denials.filter(({ reason }) => reason === "spoofed");
    return reported.reduce((sum, { repeated }) => sum + repeated, 0) === 2 ? reported : undefined;
  });
  assert.ok(spoofed.every((denial) => denial.slot.index === slot.index && /^blocked: udp 8\.8\.8\.8:7 was sent from/.test(denialText(denial))));
  assert.deepEqual(await outside.seen(), []);

  const reasons = new Set(denials.map(({ reason }) => reason));
  assert.deepEqual([...reasons].sort(), ["closed_range", "dns", "policy", "spoofed"]);
});
