// The reach of a sandbox: NAT, closed ranges, the host, siblings, IPv6, policies, DNS, bounds.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { networkInterfaces } from "node:os";
import { after, before, suite, test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { hostAddress, type Outside, privateAddresses, publicAddresses, startOutside } from "@svc/harness/outside.ts";
import { until } from "@svc/harness/until.ts";
import { type Denial, denialText } from "../src/network/denial.ts";
import type { NetworkSlot } from "../src/network/networks.ts";
import { closed, type Fixture, inNetns, open, openFixture, probe, probeFile, serveIn } from "./network-fixture.ts";

/** Few enough to be opened before the kernel expires an idle flow, even on a busy machine. */
const MAX_CONNECTIONS = 500;

suite("sandbox networks", needs("root", "ip", "nft", "unshare", "tcpdump"), () => {
  let outside: Outside;
  let fixture: Fixture;
  let slot: NetworkSlot;
  const denials: Denial[] = [];

  before(async () => {
    outside = await startOutside();
    fixture = await openFixture({ dns: { upstreams: [outside.dnsServer] }, maxConnections: MAX_CONNECTIONS, onDenied: (denial) => denials.push(denial) });
    slot = await fixture.networks.attach(open);
  });
  after(async () => {
    await fixture?.[Symbol.asyncDispose]();
    await outside?.[Symbol.asyncDispose]();
  });

  void test("a sandbox reaches public addresses, which see the node's address", async () => {
    const [http, tls, udp] = await probe(slot, [
      { try: "http", host: publicAddresses[0], port: 80 },
      { try: "tcp", host: publicAddresses[1], port: 443 },
      { try: "udp", host: publicAddresses[1], port: 7 },
    ]);
    assert.deepEqual(JSON.parse(http ?? ""), { peer: hostAddress, local: publicAddresses[0], path: "/probe" });
    assert.equal(tls, "connected");
    assert.equal(udp, "answered hello");
  });

  void test("no packet of a test's sandbox leaves this machine by its default route", async () => {
    // No interface here has this address (reserved for documentation), so any route to it would lead outside.
    assert.deepEqual(await probe(slot, [{ try: "tcp", host: "203.0.113.77", port: 80 }]), ["ENETUNREACH"]);
  });

  void test("private ranges and cloud metadata, which the host itself reaches, refuse a sandbox immediately", async () => {
    for (const address of privateAddresses) {
      const answer = await fetch(`http://${address}/control`);
      assert.equal(answer.status, 200);
    }
    await outside.seen();
    const tcp = await probe(
      slot,
      privateAddresses.map((host) => ({ try: "tcp", host, port: 80 })),
    );
    assert.deepEqual(
      tcp,
      privateAddresses.map(() => "ECONNREFUSED"),
    );
    // The kernel sends one host at most six ICMP errors in a row, for any cause, then one per second.
    for (const host of privateAddresses.slice(0, 3)) assert.deepEqual(await probe(slot, [{ try: "udp", host, port: 7 }]), ["ECONNREFUSED"], host);
    assert.deepEqual(await outside.seen(), []);
  });

  void test("no address and no port of the host answers a sandbox, including an address that the host got a moment ago", async () => {
    let connections = 0;
    const server = createServer((socket) => {
      connections++;
      socket.destroy();
    });
    await new Promise<void>((resolve) => server.listen(0, "0.0.0.0", resolve));
    const { port } = server.address() as { port: number };
    const link = Object.keys(networkInterfaces()).find((name) => name.startsWith("outside")) ?? "";
    execFileSync("ip", ["addr", "add", "203.0.113.77/32", "dev", link]);
    const addresses = () =>
      Object.values(networkInterfaces()).flatMap((all) => (all ?? []).filter(({ family }) => family === "IPv4").map(({ address }) => address));
    const own = addresses();
    const outcomes = await probe(
      slot,
      own.map((host) => ({ try: "tcp", host, port })),
    );
    server.close();
    // Addresses of other tests' sandboxes come and go meanwhile.
    const still = new Set(addresses());
    assert.ok(still.has("203.0.113.77") && still.has(slot.gatewayAddress));
    const answered = outcomes.filter((outcome, at) => outcome !== "ECONNREFUSED" && still.has(own[at] ?? ""));
    assert.deepEqual([answered, outcomes.length], [[], own.length]);
    assert.equal(connections, 0);
  });

  void test("the node reaches a sandbox's ports; another sandbox and hosts outside are refused", async () => {
    const sibling = await fixture.networks.attach(open);
    await using _server = await serveIn(sibling, 8080);
    const control = await new Promise<string>((resolve) => {
      const chunks: Buffer[] = [];
      spawn("bash", ["-c", `cat < /dev/tcp/${sibling.guestAddress}/8080`])
        .stdout.on("data", (chunk: Buffer) => chunks.push(chunk))
        .on("end", () => resolve(Buffer.concat(chunks).toString()));
    });
    assert.equal(control, "hello");
    assert.deepEqual(await probe(slot, [{ try: "tcp", host: sibling.guestAddress, port: 8080 }]), ["ECONNREFUSED"]);
    assert.equal(await outside.dial(sibling.guestAddress, 8080), "ECONNREFUSED");
    await fixture.networks.detach(sibling);
  });

  void test("IPv6 is closed: unreachable immediately, and dropped when a sandbox gives itself an address", async () => {
    assert.deepEqual(await probe(slot, [{ try: "tcp", host: "2001:db8::1", port: 80 }]), ["ENETUNREACH"]);
    let datagrams = 0;
    const server = createSocket("udp6").on("message", () => datagrams++);
    await new Promise<void>((resolve) => server.bind(0, "::", resolve));
    const { port } = server.address();
    const host =
      Object.values(networkInterfaces())
        .flatMap((all) => all ?? [])
        .find(({ family, internal }) => family === "IPv6" && !internal)?.address ?? "fd00::99";
    const mac = execFileSync("cat", [`/sys/class/net/${slot.veth}/address`], { encoding: "utf8" }).trim();
    await inNetns(slot.netns, [
      "sh",
      "-c",
      `ip -6 addr add 2001:db8::2/64 dev eth0 nodad; ip -6 neigh add fd00:5::1 lladdr ${mac} dev eth0; ip -6 route add default via fd00:5::1 dev eth0 onlink`,
    ]);
    const outcomes = await probe(slot, [{ try: "udp", host, port, limitMs: 1000 }]);
    server.close();
    assert.deepEqual(outcomes, ["timeout"]);
    assert.equal(datagrams, 0);
    await inNetns(slot.netns, ["ip", "-6", "addr", "flush", "dev", "eth0"]);
  });

  void test("a packet with a source that is not the sandbox's own is dropped", async () => {
    const sibling = await fixture.networks.attach(open);
    // The kernel's own check would also drop the packet; switching it off tests the rule alone.
    writeFileSync(`/proc/sys/net/ipv4/conf/${slot.veth}/rp_filter`, "0");
    await outside.seen();
    for (const from of ["203.0.113.5", sibling.guestAddress]) {
      await inNetns(slot.netns, ["ip", "addr", "add", `${from}/32`, "dev", "eth0"]);
      assert.deepEqual(await probe(slot, [{ try: "udp", host: publicAddresses[0], port: 7, from, limitMs: 1000 }]), ["timeout"]);
      await inNetns(slot.netns, ["ip", "addr", "del", `${from}/32`, "dev", "eth0"]);
    }
    assert.deepEqual(await outside.seen(), []);
    await fixture.networks.detach(sibling);
  });

  void test("without internet access nothing leaves a sandbox, and DNS says that it is refused", async () => {
    const fenced = await fixture.networks.attach(closed);
    await outside.seen();
    const outcomes = await probe(fenced, [
      { try: "tcp", host: publicAddresses[0], port: 80 },
      { try: "udp", host: publicAddresses[0], port: 7 },
      { try: "resolve", server: fenced.gatewayAddress, name: "www.example.com" },
      { try: "resolve", server: publicAddresses[1], name: "www.example.com" },
    ]);
    assert.deepEqual(outcomes.slice(0, 3), ["ECONNREFUSED", "ECONNREFUSED", "EREFUSED"]);
    assert.match(outcomes[3] ?? "", /^E/);
    assert.deepEqual(await outside.seen(), []);
    await fixture.networks.detach(fenced);
  });

  void test("a change of policy closes a live sandbox, including open connections, and opens it again", async () => {
    const changing = await fixture.networks.attach(open);
    const hold = JSON.stringify([{ try: "hold", host: publicAddresses[0], port: 7 }]);
    const holder = spawn("ip", ["netns", "exec", changing.netns, process.execPath, "--disable-warning=ExperimentalWarning", probeFile, hold]);
    const ended = once(holder, "close");
    let output = "";
    holder.stdout.on("data", (chunk: Buffer) => (output += chunk.toString()));
    await once(holder.stdout, "data");
    await fixture.networks.setPolicy(changing, closed);
    await ended;
    assert.match(output, /^connected\n\["(ECONNRESET|EPIPE)"\]\n$/);
    const attempt = [{ try: "tcp", host: publicAddresses[0], port: 80 }] as const;
    assert.deepEqual(await probe(changing, attempt), ["ECONNREFUSED"]);
    await fixture.networks.setPolicy(changing, open);
    assert.deepEqual(await probe(changing, attempt), ["connected"]);
    await fixture.networks.detach(changing);
  });

  void test("names resolve through the node over UDP and, where an answer is too long, over TCP", async () => {
    await outside.seen();
    const server = slot.gatewayAddress;
    const outcomes = await probe(slot, [
      { try: "resolve", server, name: "www.example.com" },
      { try: "resolve", server, name: "long.example.com" },
      { try: "resolve", server, name: "nothing.example.com" },
    ]);
    assert.deepEqual(outcomes, ["8.8.8.8", "8.8.8.8", "ENOTFOUND"]);
    const seen = await outside.seen();
    assert.ok(seen.some(({ kind, text }) => kind === "dns-tcp" && text === "long.example.com"));
    assert.ok(seen.every(({ peer }) => peer === hostAddress));
  });

  void test("a sandbox that floods DNS is limited, and its neighbour's names resolve meanwhile", async () => {
    const sibling = await fixture.networks.attach(open);
    await outside.seen();
    const server = slot.gatewayAddress;
    const flood = probe(slot, [{ try: "flood", server, name: "silent.example.com", count: 100, expected: 36 }]);
    const neighbour = await probe(sibling, [{ try: "resolve", server, name: "www.example.com" }]);
    assert.deepEqual(neighbour, ["8.8.8.8"]);
    assert.deepEqual(await flood, ["36"]);
    let asked = 0;
    await until("the questions arrive", async () => {
      asked += (await outside.seen()).filter(({ text }) => text === "silent.example.com").length;
      return asked >= 64 ? true : undefined;
    });
    assert.equal(asked, 64);
    await fixture.networks.detach(sibling);
  });

  void test("a sandbox at its limit of connections is refused more, and its neighbour is not", async () => {
    const greedy = await fixture.networks.attach(open);
    const attempt = { try: "tcp", host: publicAddresses[0], port: 80 } as const;
    const flows = { try: "flows", host: publicAddresses[0], count: MAX_CONNECTIONS + 10 } as const;
    assert.deepEqual(await probe(greedy, [attempt]), ["connected"]);
    assert.deepEqual(await probe(greedy, [flows]), ["sent"]);
    assert.deepEqual(await probe(greedy, [attempt]), ["ECONNREFUSED"]);
    assert.deepEqual(await probe(slot, [attempt]), ["connected"]);
    const reported = await until("the log says so", () => denials.find((denial) => denial.slot.index === greedy.index && denial.reason === "connections"));
    assert.match(denialText(reported), /is more than the 500 connections that one sandbox may have/);
    await fixture.networks.detach(greedy);
  });
});
