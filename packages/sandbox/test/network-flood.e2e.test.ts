// DNS under floods: a separate thread, a rate per sandbox, and capacity for all other sandboxes.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, suite, test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { type Names, startNames } from "@svc/harness/network-names.ts";
import { until } from "@svc/harness/until.ts";
import { openLog } from "@svc/kit/log.ts";
import { openDnsThread } from "../src/dns/thread.ts";
import { openEgress } from "../src/egress/policy.ts";
import { type Denial, denialText } from "../src/network/denial.ts";
import { Fence } from "../src/network/fence.ts";
import { closed, type Fixture, openFixture, probe, probeFile, running } from "./network-fixture.ts";

const PER_SECOND = 20;
const BURST = 5 * PER_SECOND;

suite("DNS of sandboxes under floods", needs("root", "ip", "nft", "tcpdump"), () => {
  let names: Names;
  let fixture: Fixture;
  const denials: Denial[] = [];

  before(async () => {
    names = await startNames({ "www.example.com": [{ name: "www.example.com", a: "192.0.2.7" }] });
    fixture = await openFixture({ dns: { upstreams: [names.upstream], perSecond: PER_SECOND }, onDenied: (denial) => denials.push(denial) });
  });
  after(async () => {
    await fixture?.[Symbol.asyncDispose]();
    await names?.[Symbol.asyncDispose]();
  });

  void test("names are answered while the node's event loop is blocked", async () => {
    const slot = await fixture.networks.attach(closed);
    const argv = ["netns", "exec", slot.netns, process.execPath, probeFile, JSON.stringify([{ try: "resolve", server: slot.gatewayAddress, name: "a.test" }])];
    // Until the probe ends, nothing of this process runs except its other threads.
    assert.match(execFileSync("ip", argv, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }), /EREFUSED/);
    await fixture.networks.detach(slot);
  });

  void test("a sandbox that pipelines questions over eight connections is limited to its rate, and its neighbour's names resolve meanwhile", async () => {
    const [greedy, neighbour] = await Promise.all([fixture.networks.attach(closed), fixture.networks.attach(openEgress)]);
    const count = 2000;
    await using flood = await running(greedy, [{ try: "pipeline", server: greedy.gatewayAddress, name: "a.test", connections: 8, count }]);
    for (let round = 0; round < 3; round++) {
      assert.deepEqual(await probe(neighbour, [{ try: "resolve", server: neighbour.gatewayAddress, name: "www.example.com" }]), ["192.0.2.7"]);
    }
    flood.child.stdin?.end();
    const answered = Number(JSON.parse(await flood.ended)[0]);
    assert.ok(answered > 0 && answered < (8 * count) / 4, `${answered} of ${8 * count} questions were answered before the neighbour's`);
    await Promise.all([fixture.networks.detach(greedy), fixture.networks.detach(neighbour)]);
  });

  void test("datagrams beyond the rate are dropped, and the log says how many; names beyond what it lists are counted", async () => {
    const slot = await fixture.networks.attach(closed);
    const count = 2 * BURST;
    await using flood = await running(slot, [{ try: "flood", server: slot.gatewayAddress, name: "b.test", count, expected: 1 }], { silent: true });
    const sum = (reason: Denial["reason"]) =>
      denials.filter((denial) => denial.slot.index === slot.index && denial.reason === reason).reduce((total, { repeated }) => total + repeated, 0);
    await until("every question is accounted for", () => (sum("dns") + sum("unlisted_names") + sum("dns_rate") === count ? true : undefined));
    assert.ok(
      sum("dns_rate") > 0 && sum("unlisted_names") > 0 && sum("dns") >= BURST / 2,
      JSON.stringify([sum("dns"), sum("unlisted_names"), sum("dns_rate")]),
    );
    const said = denials.find(({ reason }) => reason === "dns_rate");
    assert.match(said === undefined ? "" : denialText(said), /^blocked: DNS questions: more than 20 a second are not answered/);
    flood.child.kill("SIGKILL");
    await fixture.networks.detach(slot);
  });
});

void test("the thread that answers DNS is started again when it dies, on the same port and with every policy", async () => {
  const slot = { index: 2, netns: "n", netnsPath: "/n", veth: "n", guestAddress: "127.0.0.1", prefixLength: 32, gatewayAddress: "127.0.0.1" };
  const fence = new Fence("aaaaaa", slot, { ...openEgress, allowInternet: false });
  const fences: Fence[] = [fence];
  const dns = await openDnsThread({
    address: "127.0.0.1",
    port: 0,
    upstreams: ["127.0.0.1:1"],
    rate: { perSecond: 100, burst: 100 },
    closed: [],
    proxyOf: async () => undefined,
    log: openLog("network-test", "silent"),
    clients: () => fences,
    resolved: async () => {},
    onReport: () => {},
    onPort: () => assert.fail("the port was free"),
  });
  const resolver = new (await import("node:dns/promises")).Resolver({ timeout: 5_000, tries: 1 });
  resolver.setServers([`127.0.0.1:${dns.port}`]);
  const outcome = () => resolver.resolve4("a.test").catch((error: NodeJS.ErrnoException) => error.code);
  await dns.setPolicy(fence);
  assert.equal(await outcome(), "EREFUSED");
  const { port } = dns;
  // This object has no policy, so the thread fails on it.
  const broken = Object.create(fence, { policy: { value: undefined }, id: { value: -1 } }) as Fence;
  await dns.setPolicy(broken);
  assert.equal(await until("the next thread answers", async () => ((await outcome()) === "EREFUSED" ? "EREFUSED" : undefined)), "EREFUSED");
  assert.equal(dns.port, port);
  await dns.close();
});
