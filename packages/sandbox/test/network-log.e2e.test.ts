// Every denial is in the sandbox's network log with its reason: all reasons, folded, bounded, and logged again after the reader died.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, readlinkSync, writeFileSync } from "node:fs";
import { after, before, suite, test } from "node:test";
import { fileURLToPath } from "node:url";
import { makeHome } from "@svc/harness/home.ts";
import { needs } from "@svc/harness/needs.ts";
import { type Names, startNames } from "@svc/harness/network-names.ts";
import { type Outside, publicAddresses, startOutside } from "@svc/harness/outside.ts";
import { until } from "@svc/harness/until.ts";
import { type EgressPolicy, openEgress } from "../src/egress/policy.ts";
import { type Denial, denialText } from "../src/network/denial.ts";
import { tableOf, tokenOf } from "../src/network/names.ts";
import type { NetworkSlot } from "../src/network/networks.ts";
import { NOTED_BURST } from "../src/network/rules.ts";
import { type Fixture, inNetns, killed, openFixture, probe } from "./network-fixture.ts";

const [one, eight] = publicAddresses;
const rules: EgressPolicy = { allowInternet: true, allowOut: ["www.example.com"], denyOut: ["0.0.0.0/0"] };

/** Returns the children of this process, or of another one, that run tcpdump. */
function readers(parent = process.pid): number[] {
  return readFileSync(`/proc/${parent}/task/${parent}/children`, "utf8")
    .trim()
    .split(" ")
    .map(Number)
    .filter((pid) => pid > 0 && programOf(pid).endsWith("tcpdump"));
}

function programOf(pid: number): string {
  try {
    return readlinkSync(`/proc/${pid}/exe`);
  } catch {
    return ""; // ended meanwhile
  }
}

suite("the network log", needs("root", "ip", "nft", "python3", "unshare", "tcpdump"), () => {
  let outside: Outside;
  let names: Names;
  let fixture: Fixture;
  const denials: Denial[] = [];

  before(async () => {
    outside = await startOutside();
    names = await startNames({
      "www.example.com": [{ name: "www.example.com", a: one }],
      "other.example.com": [{ name: "other.example.com", a: eight }],
    });
    fixture = await openFixture({ dns: { upstreams: [names.upstream] }, onDenied: (denial) => denials.push(denial) });
  });
  after(async () => {
    await fixture?.[Symbol.asyncDispose]();
    await names?.[Symbol.asyncDispose]();
    await outside?.[Symbol.asyncDispose]();
  });

  const of = (slot: NetworkSlot): Denial[] => denials.filter((denial) => denial.slot.index === slot.index);
  /** Returns the log texts of a slot, once there are this many. */
  const said = (slot: NetworkSlot, count: number): Promise<string[]> =>
    until(`${count} denials`, () => {
      const texts = of(slot).map(denialText);
      return texts.length >= count ? texts.sort() : undefined;
    });
  const forget = (): void => void denials.splice(0);

  void test("every denied connection is reported once, with the rule that denied it", async () => {
    forget();
    const slot = await fixture.networks.attach(openEgress);
    const sibling = await fixture.networks.attach(openEgress);
    const began = Date.now();
    await probe(slot, [{ try: "resolve", server: slot.gatewayAddress, name: "other.example.com" }]);
    await fixture.networks.setPolicy(slot, rules);
    await probe(slot, [
      { try: "tcp", host: eight, port: 443 },
      { try: "udp", host: one, port: 53 },
      { try: "tcp", host: "169.254.169.254", port: 80 },
      { try: "tcp", host: sibling.guestAddress, port: 8080 },
      { try: "tcp", host: slot.gatewayAddress, port: 22 },
      { try: "resolve", server: slot.gatewayAddress, name: "other.example.com" },
    ]);
    const expected = [
      `blocked by policy: tcp ${eight}:443 (other.example.com) matches no allowOut rule and denyOut holds 0.0.0.0/0`,
      "blocked by policy: the name other.example.com is not resolved: matches no allowOut rule and denyOut holds 0.0.0.0/0",
      `blocked by policy: udp ${one}:53 matches no allowOut rule and denyOut holds 0.0.0.0/0`,
      "blocked: tcp 169.254.169.254:80 is in 169.254.0.0/16, which no rule opens",
      `blocked: tcp ${slot.gatewayAddress}:22 is an address of the host, of which sandboxes reach nothing but DNS`,
      `blocked: tcp ${sibling.guestAddress}:8080 is in the range of the sandboxes, which cannot reach one another`,
    ];
    assert.deepEqual(await said(slot, expected.length), expected.sort());
    assert.ok(of(slot).every(({ atMs, repeated }) => repeated === 1 && atMs >= began && atMs <= Date.now()));
    assert.deepEqual(of(sibling), []);
    await Promise.all([fixture.networks.detach(slot), fixture.networks.detach(sibling)]);
  });

  void test("a packet of a connection that the host has forgotten makes no log entry", async () => {
    forget();
    const slot = await fixture.networks.attach(openEgress);
    // This imitates envd's keep-alives after the host's connection table was emptied: an ACK without a connection.
    const program = [
      "import socket, struct, sys",
      "source, target, port = socket.inet_aton(sys.argv[1]), socket.inet_aton(sys.argv[2]), int(sys.argv[3])",
      "def packet(check): return struct.pack('!HHIIBBHHH', 49983, port, 1, 1, 0x50, 0x10, 64, check, 0)",
      "data = source + target + struct.pack('!BBH', 0, 6, 20) + packet(0)",
      "total = sum(struct.unpack('!%dH' % (len(data) // 2), data))",
      "total = (total >> 16) + (total & 0xffff)",
      "check = ~(total + (total >> 16)) & 0xffff",
      "raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)",
      "raw.settimeout(20)",
      "raw.sendto(packet(check), (sys.argv[2], 0))",
      "print('reset' if raw.recv(100)[33] & 4 else 'answered')",
    ].join("\n");
    const ack = (port: number) => inNetns(slot.netns, ["python3", "-c", program, slot.guestAddress, slot.gatewayAddress, String(port)]);
    assert.equal(await ack(40_001), "reset\n");
    await probe(slot, [{ try: "tcp", host: slot.gatewayAddress, port: 22 }]);
    const expected = [`blocked: tcp ${slot.gatewayAddress}:22 is an address of the host, of which sandboxes reach nothing but DNS`];
    assert.deepEqual(await said(slot, 1), expected);
    await fixture.networks.detach(slot);
  });

  void test("packets with a spoofed source are reported, too", async () => {
    forget();
    const slot = await fixture.networks.attach(openEgress);
    // The kernel's own check ignores ARP requests with a foreign source, so the sandbox must know the neighbour already.
    writeFileSync(`/proc/sys/net/ipv4/conf/${slot.veth}/rp_filter`, "0");
    await inNetns(slot.netns, ["ip", "addr", "add", "203.0.113.5/32", "dev", "eth0"]);
    await probe(slot, [
      { try: "tcp", host: one, port: 80 },
      { try: "udp", host: one, port: 7, from: "203.0.113.5", limitMs: 200 },
    ]);
    assert.deepEqual(await said(slot, 1), [`blocked: udp ${one}:7 was sent from 203.0.113.5, which is not this sandbox's address`]);
    await fixture.networks.detach(slot);
  });

  void test("the same denial again within a second is one entry with a count", async () => {
    forget();
    const slot = await fixture.networks.attach({ ...openEgress, denyOut: [eight] });
    await inNetns(slot.netns, ["bash", "-c", `for i in $(seq 20); do echo x > /dev/udp/${eight}/9; done`]);
    await until("twenty packets are reported", () => (of(slot).reduce((sum, { repeated }) => sum + repeated, 0) === 20 ? true : undefined));
    assert.ok(of(slot).length < 10);
    const folded = of(slot).find(({ repeated }) => repeated > 1) ?? assert.fail("none was folded");
    assert.match(denialText(folded), /^blocked by policy: udp 8\.8\.8\.8:9 matches denyOut 8\.8\.8\.8\/32 \(\d+ times\)$/);
    await fixture.networks.detach(slot);
  });

  void test("a flood of denied packets is reported in part and counted completely, and a neighbour's denials are reported meanwhile", async () => {
    forget();
    const greedy = await fixture.networks.attach(openEgress);
    const sibling = await fixture.networks.attach(openEgress);
    const count = 3000;
    const flood = inNetns(greedy.netns, ["bash", "-c", `for i in $(seq ${count}); do echo x > /dev/udp/10.9.9.9/$((1000 + i)); done`]);
    await probe(sibling, [{ try: "tcp", host: "169.254.169.254", port: 80 }]);
    assert.deepEqual(await said(sibling, 1), ["blocked: tcp 169.254.169.254:80 is in 169.254.0.0/16, which no rule opens"]);
    await flood;
    await until("all are reported or counted", () => (of(greedy).reduce((sum, { repeated }) => sum + repeated, 0) === count ? true : undefined));
    const listed = of(greedy).filter(({ reason }) => reason !== "unlisted").length;
    assert.ok(listed >= NOTED_BURST && listed < count / 10, `${listed} entries`);
    await Promise.all([fixture.networks.detach(greedy), fixture.networks.detach(sibling)]);
  });

  void test("a killed reader is restarted, and entries are logged again", async () => {
    const slot = await fixture.networks.attach({ ...openEgress, allowInternet: false });
    const [pid = 0, ...more] = readers();
    assert.deepEqual(more, []);
    assert.ok(pid > 0);
    process.kill(pid, "SIGKILL");
    await until("another reader", () => (readers().some((other) => other !== pid) ? true : undefined));
    const text = await until("an entry", async () => {
      forget();
      await probe(slot, [{ try: "tcp", host: one, port: 80 }]);
      return of(slot)[0];
    });
    // Later denials within the same second are counted with the first.
    assert.equal(denialText(text).replace(/ \(\d+ times\)$/, ""), `blocked by policy: tcp ${one}:80 allow_internet_access is false`);
    await fixture.networks.detach(slot);
  });

  void test("a group that another program reads is left to it, even if it took the group while the reader was down", async () => {
    const table = tableOf(tokenOf(fixture.home));
    const group = (): number =>
      Number(/log prefix "policy" group (\d+)/.exec(execFileSync("nft", ["list", "table", "inet", table], { encoding: "utf8" }))?.[1]);
    const first = group();
    await using second = await openFixture({ onDenied: () => {} });
    assert.notEqual(
      Number(/group (\d+)/.exec(execFileSync("nft", ["list", "table", "inet", tableOf(tokenOf(second.home))], { encoding: "utf8" }))?.[1]),
      first,
    );
    const thief = spawn("sh", ["-c", `until tcpdump -i nflog:${first} -Z root -w /dev/null 2>/dev/null; do :; done`], {
      stdio: "ignore",
      detached: true,
    });
    try {
      const stolen = await until("the group is taken", () => {
        if (group() !== first) return true;
        for (const pid of readers().slice(0, 1)) process.kill(pid, "SIGKILL");
        return undefined;
      });
      assert.ok(stolen);
      const slot = await fixture.networks.attach({ ...openEgress, allowInternet: false });
      await until("an entry", async () => {
        forget();
        await probe(slot, [{ try: "tcp", host: one, port: 80 }]);
        return of(slot)[0];
      });
      await fixture.networks.detach(slot);
    } finally {
      process.kill(-(thief.pid ?? 0), "SIGKILL");
    }
  });

  void test("a node that is killed takes its reader along", async () => {
    const home = makeHome();
    const ownerFile = fileURLToPath(new URL("./network-owner.ts", import.meta.url));
    const owner = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", ownerFile, home, outside.dnsServer], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    await once(owner.stdout, "data");
    const [reader = 0] = readers(owner.pid);
    assert.ok(reader > 0);
    await killed(owner);
    await until("the reader is gone", () => (programOf(reader) === "" ? true : undefined));
    // The rest of its sandboxes is removed with the next networks of its home.
    await using _left = await openFixture({ home });
  });
});
