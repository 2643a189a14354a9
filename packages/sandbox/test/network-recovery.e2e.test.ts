// Networks over time: many at once, two homes, a killed node, orphaned slots, rules removed by others.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { suite, test } from "node:test";
import { fileURLToPath } from "node:url";
import type { Failure } from "@svc/contract/failures.ts";
import { makeHome } from "@svc/harness/home.ts";
import { needs } from "@svc/harness/needs.ts";
import { publicAddresses, startOutside } from "@svc/harness/outside.ts";
import { until } from "@svc/harness/until.ts";
import { claimName } from "../src/network/block.ts";
import { prefixOf, tableOf, tokenOf } from "../src/network/names.ts";
import type { NetworkSlot } from "../src/network/networks.ts";
import { closed, inNetns, killed, open, openFixture, probe, serveIn } from "./network-fixture.ts";

/** Returns everything in the kernel and the file system that belongs to a home's networks. */
function traces(token: string): string[] {
  const tables = execFileSync("nft", ["list", "tables"], { encoding: "utf8" });
  const links = readdirSync("/sys/class/net").filter((name) => name.startsWith(prefixOf(token)));
  const anchors = execFileSync("ip", ["link"], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] })
    .split("\n")
    .filter((line) => line.includes(`alias ${token}`));
  const namespaces = readdirSync("/run/netns").filter((name) => name.startsWith(prefixOf(token)));
  return [...links, ...namespaces, ...anchors, ...(tables.includes(tableOf(token)) ? [tableOf(token)] : [])];
}

suite("sandbox networks over time", needs("root", "ip", "nft", "unshare"), () => {
  void test("100 sandboxes get their networks at once, each its own, and leave nothing behind", async () => {
    const fixture = await openFixture();
    const token = tokenOf(fixture.home);
    try {
      const slots = await Promise.all(Array.from({ length: 100 }, (_, at) => fixture.networks.attach(at % 10 === 0 ? closed : open)));
      assert.equal(new Set(slots.map(({ guestAddress }) => guestAddress)).size, 100);
      for (const slot of slots) assert.match(execFileSync("ip", ["-n", slot.netns, "addr"], { encoding: "utf8" }), new RegExp(`inet ${slot.guestAddress}/32 `));
      const chains = execFileSync("nft", ["list", "table", "inet", tableOf(token)], { encoding: "utf8" });
      for (const [at, { index }] of slots.entries()) {
        assert.match(chains, new RegExp(`chain slot_${index} \\{\\s+${at % 10 === 0 ? "goto refuse_policy" : "accept"}\\s`));
      }
      // Each slot is detached twice, and the second call finds nothing to do.
      await Promise.all([...slots, ...slots].map((slot) => fixture.networks.detach(slot)));
      await Promise.all(slots.map((slot) => fixture.networks.detach(slot)));
      assert.deepEqual(await fixture.networks.orphans(), []);
    } finally {
      await fixture[Symbol.asyncDispose]();
    }
    assert.deepEqual(traces(token), []);
  });

  void test("two nodes on one machine take different addresses, and their sandboxes cannot reach one another", async () => {
    await using outside = await startOutside();
    await using first = await openFixture({ dns: { upstreams: [outside.dnsServer] } });
    await using second = await openFixture({ dns: { upstreams: [outside.dnsServer] } });
    const [here, there] = await Promise.all([first.networks.attach(open), second.networks.attach(open)]);
    assert.notEqual(here.gatewayAddress, there.gatewayAddress);
    await using _server = await serveIn(there, 8080);
    const outcomes = await probe(here, [
      { try: "resolve", server: here.gatewayAddress, name: "www.example.com" },
      { try: "tcp", host: publicAddresses[0], port: 80 },
      { try: "tcp", host: there.guestAddress, port: 8080 },
      { try: "tcp", host: there.gatewayAddress, port: 53 },
    ]);
    assert.deepEqual(outcomes, ["8.8.8.8", "connected", "ECONNREFUSED", "ECONNREFUSED"]);
    assert.deepEqual(await probe(there, [{ try: "resolve", server: there.gatewayAddress, name: "www.example.com" }]), ["8.8.8.8"]);
  });

  void test("a second node for the same home learns which one serves it", async () => {
    await using fixture = await openFixture();
    await assert.rejects(
      openFixture({ home: fixture.home }),
      (failure: Failure) => failure.name === "HOST_UNSUITABLE" && failure.message.includes(fixture.home),
    );
  });

  void test("sandboxes of a killed node keep their network, and the next start adopts them and finds the rest", async () => {
    await using outside = await startOutside();
    const home = makeHome();
    const ownerFile = fileURLToPath(new URL("./network-owner.ts", import.meta.url));
    const owner = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", ownerFile, home, outside.dnsServer], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const [line] = (await once(owner.stdout, "data")) as [Buffer];
    const [kept, lost] = JSON.parse(line.toString()) as [NetworkSlot, NetworkSlot];
    await killed(owner);

    const egress = { try: "tcp", host: publicAddresses[0], port: 80 } as const;
    const name = { try: "resolve", server: kept.gatewayAddress, name: "www.example.com" } as const;
    const denied = { try: "tcp", host: "169.254.169.254", port: 80 } as const;
    // While no node runs, traffic continues within the rules, and DNS fails immediately instead of stalling.
    assert.deepEqual(await probe(kept, [egress, denied, name]), ["connected", "ECONNREFUSED", "ECONNREFUSED"]);
    // This is worse than a kill: the rules and the interface with the claim are gone too.
    const token = tokenOf(home);
    execFileSync("nft", ["delete", "table", "inet", tableOf(token)]);
    const devices = JSON.parse(execFileSync("ip", ["-j", "link", "show", "type", "veth"], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] })) as {
      ifname: string;
      ifalias?: string;
    }[];
    execFileSync("ip", ["link", "del", devices.find(({ ifalias }) => ifalias === token)?.ifname ?? "none"]);

    {
      await using fixture = await openFixture({ home, dns: { upstreams: [outside.dnsServer] } });
      await fixture.networks.adopt(kept, open);
      assert.deepEqual(await probe(kept, [egress, denied, name]), ["connected", "ECONNREFUSED", "8.8.8.8"]);
      // The other slot was not adopted: it is closed, and listed as an orphan with the prepared slots of the killed node.
      assert.deepEqual(await probe(lost, [{ ...egress, limitMs: 1000 }]), ["timeout"]);
      const orphans = await fixture.networks.orphans();
      assert.ok(orphans.includes(lost.netns) && !orphans.includes(kept.netns));
      await assert.rejects(fixture.networks.removeOrphan(kept.netns), /in use/);
      for (const orphan of orphans) await fixture.networks.removeOrphan(orphan);
      assert.deepEqual(await fixture.networks.orphans(), []);
      assert.deepEqual(await probe(kept, [egress]), ["connected"]);
      // A slot without its interface cannot be adopted, but the rest of it can still be removed.
      await assert.rejects(fixture.networks.adopt(lost, open), /gone/);
      await fixture.networks.detach(lost);
    }
    assert.deepEqual(traces(token), []);
  });

  void test("addresses claimed by a dead node without sandboxes are released", async () => {
    const [anchor, peer, dead] = ["svcb0acff800", "svcp0acff800", "0d0d0d"];
    // Any node of this machine would release the claim before it is complete.
    const lock = await until("the lock of all claims", () => claimName("svc-networks"));
    try {
      execFileSync("ip", ["link", "add", anchor, "type", "veth", "peer", "name", peer]);
      execFileSync("ip", ["link", "set", anchor, "alias", dead]);
      execFileSync("nft", ["add", "table", "inet", tableOf(dead)]);
      assert.equal(traces(dead).length, 2);
    } finally {
      lock.close();
    }
    await using _fixture = await openFixture();
    assert.deepEqual(traces(dead), []);
  });

  void test("rules that another program removed are restored automatically", async () => {
    await using fixture = await openFixture();
    const table = tableOf(tokenOf(fixture.home));
    const fenced = await fixture.networks.attach(closed);
    execFileSync("nft", ["delete", "table", "inet", table]);
    const rules = await until("the table is back", async () => {
      const { code, stdout } = await fixture.spawner.run(["nft", "list", "table", "inet", table]);
      return code === 0 ? stdout : undefined;
    });
    assert.match(rules, new RegExp(`chain slot_${fenced.index} \\{\\s+goto refuse_policy\\s`));
    execFileSync("nft", ["delete", "table", "inet", table]);
    // A change restores the table without waiting for the check.
    await fixture.networks.setPolicy(fenced, open);
    assert.match(execFileSync("nft", ["list", "table", "inet", table], { encoding: "utf8" }), new RegExp(`chain slot_${fenced.index} \\{\\s+accept\\s`));
  });

  void test("the address and routes that a runtime removed from a sandbox's interface are set again for a restore", async () => {
    await using fixture = await openFixture();
    const slot = await fixture.networks.attach(open);
    const state = (): Promise<string> => inNetns(slot.netns, ["sh", "-c", "ip -4 -br addr show eth0; ip route"]);
    const whole = await state();
    await inNetns(slot.netns, ["ip", "addr", "flush", "dev", "eth0"]);
    assert.notEqual(await state(), whole);
    await fixture.networks.restoreGuestSide(slot);
    await fixture.networks.restoreGuestSide(slot);
    assert.equal(await state(), whole);
  });
});
