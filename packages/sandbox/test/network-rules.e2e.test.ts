// Egress rules in the kernel: their precedence, the ranges that no rule opens, and rules that are replaced while packets flow.
import assert from "node:assert/strict";
import { after, before, suite, test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { type Outside, privateAddresses, publicAddresses, startOutside } from "@svc/harness/outside.ts";
import { type EgressPolicy, openEgress } from "../src/egress/policy.ts";
import { type Fixture, openFixture, probe, running, serveIn } from "./network-fixture.ts";
import { startStreamer, streamerAddress, streamerPort } from "./network-streamer.ts";

const [one, eight] = publicAddresses;
const all = "0.0.0.0/0";
const policy = (allowOut: string[], denyOut: string[], allowInternet = true): EgressPolicy => ({ allowInternet, allowOut, denyOut });
const [yes, no] = ["connected", "ECONNREFUSED"];

suite("egress rules", needs("root", "ip", "nft", "unshare"), () => {
  let outside: Outside;
  let fixture: Fixture;

  before(async () => {
    outside = await startOutside();
    fixture = await openFixture({ dns: { upstreams: [outside.dnsServer] } });
  });
  after(async () => {
    await fixture?.[Symbol.asyncDispose]();
    await outside?.[Symbol.asyncDispose]();
  });

  void test("allowOut wins over denyOut, and allow_internet_access decides for all other addresses", async () => {
    const slot = await fixture.networks.attach(openEgress);
    const cases: [EgressPolicy, string, string][] = [
      [policy([], ["8.8.0.0/16"]), yes, no],
      [policy([eight], ["8.8.0.0/16"]), yes, yes],
      [policy(["8.8.8.0/24"], ["8.8.8.8"]), yes, yes],
      [policy([one], [all]), yes, no],
      [policy(["1.0.0.0/8", "8.0.0.0/7"], [all]), yes, yes],
      [policy([one], ["0.0.0.0/1", "128.0.0.0/1"]), yes, no],
      [policy([eight], [], false), no, yes],
      [policy([all], [all], false), yes, yes],
      [policy(["4.4.4.4", "4.4.4.4/32", "4.4.4.0/24", one], [one, eight, "8.8.0.0/16"]), yes, no],
      [policy([], ["::/0"]), yes, yes],
      [policy([], [all, "::/0"]), no, no],
      [openEgress, yes, yes],
    ];
    for (const [rules, toOne, toEight] of cases) {
      await fixture.networks.setPolicy(slot, rules);
      const outcomes = await probe(slot, [
        { try: "tcp", host: one, port: 80 },
        { try: "tcp", host: eight, port: 443 },
        { try: "udp", host: eight, port: 7 },
      ]);
      assert.deepEqual(outcomes, [toOne, toEight, toEight === yes ? "answered hello" : "ECONNREFUSED"], JSON.stringify(rules));
    }
    await fixture.networks.detach(slot);
  });

  void test("no rule opens private ranges, the metadata service in any spelling, the host or another sandbox", async () => {
    const everything = policy([all, "10.0.0.0/8", "169.254.169.254", "169.254.0.0/16", "192.168.255.1", "100.64.0.0/10"], []);
    const slot = await fixture.networks.attach(everything);
    const sibling = await fixture.networks.attach(everything);
    await using _server = await serveIn(sibling, 8080);
    const spellings = ["169.254.169.254", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.16689662", "::ffff:169.254.169.254", "::ffff:a9fe:a9fe"];
    const targets = [...privateAddresses, ...spellings].map((host) => ({ try: "tcp", host, port: 80 }) as const);
    const host = [22, 80, 8000, 49_983].map((port) => ({ try: "tcp", host: slot.gatewayAddress, port }) as const);
    await outside.seen();
    const outcomes = await probe(slot, [...targets, ...host, { try: "tcp", host: sibling.guestAddress, port: 8080 }, { try: "tcp", host: one, port: 80 }]);
    assert.deepEqual(outcomes, [...targets.map(() => no), ...host.map(() => no), no, yes]);
    // The refusal may have another cause (a closed port, an unknown address), so the check is that nothing arrived.
    assert.deepEqual(
      (await outside.seen()).filter(({ local }) => local !== one),
      [],
    );
    await Promise.all([fixture.networks.detach(slot), fixture.networks.detach(sibling)]);
  });

  void test("rules replaced under load pass no packet to a denied address and lose none to an allowed one", async () => {
    const slot = await fixture.networks.attach(policy([one], [all]));
    await outside.seen();
    await using held = await running(slot, [{ try: "hold", host: one, port: 7 }]);
    await using churning = await running(
      slot,
      [
        { try: "churn", host: one, port: 443 },
        { try: "churn", host: eight, port: 443 },
      ],
      { silent: true },
    );
    const policies = [policy([one, "4.4.4.4"], [all]), policy([one], [], false), policy([one, "www.example.com"], [all]), policy([], ["8.0.0.0/8"])];
    // Both probes have reported enough attempts.
    const hasChurned = () => churning.said().split("churned").length > 2;
    for (let round = 0; round < 120 || !hasChurned(); round++) await fixture.networks.setPolicy(slot, policies[round % policies.length] ?? openEgress);
    churning.child.stdin?.end();
    const [allowed, denied] = (JSON.parse(await churning.ended) as string[]).map((counts) => JSON.parse(counts) as Record<string, number>);
    assert.deepEqual(Object.keys(allowed ?? {}), [yes]);
    assert.deepEqual(Object.keys(denied ?? {}), [no]);
    assert.ok((allowed?.[yes] ?? 0) > 100 && (denied?.[no] ?? 0) > 100);
    assert.deepEqual(
      (await outside.seen()).filter(({ local }) => local === eight),
      [],
    );
    assert.equal(held.child.exitCode, null);
    await fixture.networks.detach(slot);
  });

  void test("of concurrent updates, the last one stays in force", async () => {
    const slot = await fixture.networks.attach(openEgress);
    const updates = Array.from({ length: 20 }, (_, at) => policy(at % 2 === 0 ? [eight] : [one], [all]));
    await Promise.all(updates.map((rules) => fixture.networks.setPolicy(slot, rules)));
    const outcomes = await probe(slot, [
      { try: "tcp", host: one, port: 80 },
      { try: "tcp", host: eight, port: 80 },
    ]);
    assert.deepEqual(outcomes, [yes, no]);
    await fixture.networks.detach(slot);
  });

  void test("a destination that is denied while it sends receives and delivers nothing more", async () => {
    await using _streamer = await startStreamer();
    const slot = await fixture.networks.attach(openEgress);
    const flow = { try: "listen", host: streamerAddress, port: streamerPort, limitMs: 500 } as const;
    await using denied = await running(slot, [flow]);
    await fixture.networks.setPolicy(slot, policy([], [`${streamerAddress}/32`]));
    denied.child.stdin?.end();
    assert.equal(await denied.ended, '["0"]');
    await fixture.networks.detach(slot);
  });

  void test("the same stream continues when the new rules allow it", async () => {
    await using _streamer = await startStreamer();
    const slot = await fixture.networks.attach(policy([streamerAddress], [all]));
    await using listening = await running(slot, [{ try: "listen", host: streamerAddress, port: streamerPort, limitMs: 10_000 }]);
    await fixture.networks.setPolicy(slot, policy([streamerAddress], [], false));
    listening.child.stdin?.end();
    const [heard = "0"] = JSON.parse(await listening.ended) as string[];
    assert.ok(Number(heard) > 0);
    await fixture.networks.detach(slot);
  });
});
