// Domains in allowOut: which names resolve, the addresses they open and for how long, and the addresses they never open.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, suite, test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { type Names, startNames } from "@svc/harness/network-names.ts";
import { type Outside, publicAddresses, startOutside } from "@svc/harness/outside.ts";
import { until } from "@svc/harness/until.ts";
import { openEgress } from "../src/egress/policy.ts";
import { tableOf, tokenOf } from "../src/network/names.ts";
import { type Fixture, openFixture, probe, running } from "./network-fixture.ts";

const [one, eight] = publicAddresses;
const only = (...allowOut: string[]) => ({ ...openEgress, allowOut, denyOut: ["0.0.0.0/0"] });

suite("domains in allowOut", needs("root", "ip", "nft", "unshare"), () => {
  let outside: Outside;
  let names: Names;
  let fixture: Fixture;

  before(async () => {
    outside = await startOutside();
    names = await startNames({
      "www.example.com": [
        { name: "edge.cdn.test", a: one },
        { name: "www.example.com", cname: "edge.cdn.test" },
      ],
      "deep.down.pkg.example.org": [{ name: "deep.down.pkg.example.org", a: eight }],
      "pkg.example.org": [{ name: "pkg.example.org", a: eight }],
      "long.example.com": [{ name: "long.example.com", a: eight }],
      "other.example.net": [{ name: "other.example.net", a: eight }],
      "stray.example.com": [
        { name: "stray.example.com", a: one },
        { name: "elsewhere.test", a: eight },
      ],
    });
    fixture = await openFixture({ dns: { upstreams: [names.upstream] } });
  });
  after(async () => {
    await fixture?.[Symbol.asyncDispose]();
    await names?.[Symbol.asyncDispose]();
    await outside?.[Symbol.asyncDispose]();
  });

  const opened = (set: string, index: number): string[] => {
    const listing = execFileSync("nft", ["list", "set", "inet", tableOf(tokenOf(fixture.home)), `${set}_${index}`], { encoding: "utf8", stdio: "pipe" });
    return [...listing.matchAll(/(\d+\.\d+\.\d+\.\d+) timeout/g)].map(([, address = ""]) => address).sort();
  };

  void test("a domain opens its addresses by the time its answer arrives, and nothing else resolves or is reached", async () => {
    const slot = await fixture.networks.attach(only("www.example.com", "*.pkg.example.org", "long.example.com"));
    const server = slot.gatewayAddress;
    assert.deepEqual(await probe(slot, [{ try: "tcp", host: one, port: 80 }]), ["ECONNREFUSED"]);
    names.asked();
    assert.deepEqual(
      await probe(slot, [
        { try: "visit", server, name: "WWW.Example.COM", port: 80 },
        { try: "resolve", server, name: "pkg.example.org" },
        { try: "resolve", server, name: "notpkg.example.org" },
        { try: "resolve", server, name: "example.com" },
        { try: "resolve", server, name: "other.example.net" },
        { try: "tcp", host: eight, port: 80 },
      ]),
      ["connected", "EREFUSED", "EREFUSED", "EREFUSED", "EREFUSED", "ECONNREFUSED"],
    );
    assert.deepEqual(names.asked(), ["udp www.example.com"]);
    assert.deepEqual(
      await probe(slot, [
        { try: "visit", server, name: "deep.down.pkg.example.org", port: 80 },
        { try: "tcp", host: one, port: 443 },
      ]),
      ["connected", "connected"],
    );
    await fixture.networks.detach(slot);
  });

  void test("an answer over TCP opens addresses like any other", async () => {
    const slot = await fixture.networks.attach(only("long.example.com"));
    assert.deepEqual(await probe(slot, [{ try: "visit", server: slot.gatewayAddress, name: "long.example.com", port: 80 }]), ["connected"]);
    assert.ok(names.asked().includes("tcp long.example.com"));
    await fixture.networks.detach(slot);
  });

  void test("with allow_internet_access false only the domains of allowOut resolve; with addresses only, DNS is refused", async () => {
    const named = await fixture.networks.attach({ allowInternet: false, allowOut: ["www.example.com"], denyOut: [] });
    const addressed = await fixture.networks.attach({ allowInternet: false, allowOut: [one], denyOut: [] });
    assert.deepEqual(
      await probe(named, [
        { try: "visit", server: named.gatewayAddress, name: "www.example.com", port: 80 },
        { try: "tcp", host: eight, port: 80 },
      ]),
      ["connected", "ECONNREFUSED"],
    );
    assert.deepEqual(
      await probe(addressed, [
        { try: "resolve", server: addressed.gatewayAddress, name: "www.example.com" },
        { try: "tcp", host: one, port: 80 },
      ]),
      ["EREFUSED", "connected"],
    );
    await Promise.all([fixture.networks.detach(named), fixture.networks.detach(addressed)]);
  });

  void test("a name that points at the metadata service, private ranges, the host or a sandbox opens none of them", async () => {
    const sibling = await fixture.networks.attach(openEgress);
    const slot = await fixture.networks.attach(only("rebind.example.com"));
    const bad = ["169.254.169.254", "127.0.0.1", "0.0.0.0", "10.9.9.9", "172.31.255.1", "192.168.255.1", "100.100.100.200", slot.gatewayAddress];
    const all = [...bad, sibling.guestAddress, "224.0.0.1", "255.255.255.255", one];
    names.records.set(
      "rebind.example.com",
      all.map((a) => ({ name: "rebind.example.com", a })),
    );
    assert.deepEqual(await probe(slot, [{ try: "resolve", server: slot.gatewayAddress, name: "rebind.example.com" }]), [all.join(",")]);
    assert.deepEqual(opened("names", slot.index), [one]);
    const refused = [...bad.filter((address) => !/^(127|0)\./.test(address)), sibling.guestAddress];
    assert.deepEqual(
      await probe(
        slot,
        [...refused, one].map((host) => ({ try: "tcp", host, port: 80 })),
      ),
      [...refused.map(() => "ECONNREFUSED"), "connected"],
    );
    await Promise.all([fixture.networks.detach(slot), fixture.networks.detach(sibling)]);
  });

  void test("records of an answer that belong to another name open nothing", async () => {
    const slot = await fixture.networks.attach(only("stray.example.com"));
    await probe(slot, [{ try: "resolve", server: slot.gatewayAddress, name: "stray.example.com" }]);
    assert.deepEqual(opened("names", slot.index), [one]);
    await fixture.networks.detach(slot);
  });

  void test("an expired address takes no new connections, and open connections continue", async () => {
    const slot = await fixture.networks.attach(only("www.example.com"));
    await probe(slot, [{ try: "resolve", server: slot.gatewayAddress, name: "www.example.com" }]);
    await using held = await running(slot, [{ try: "hold", host: one, port: 7 }]);
    await until("its packets are seen", () => (opened("live", slot.index).includes(one) ? true : undefined));
    // The kernel does the same at the timeout, for which the test does not wait.
    execFileSync("nft", ["delete", "element", "inet", tableOf(tokenOf(fixture.home)), `names_${slot.index}`, `{ ${one} }`]);
    assert.deepEqual(await probe(slot, [{ try: "tcp", host: one, port: 80 }]), ["ECONNREFUSED"]);
    assert.equal(held.said(), "connected\n");
    assert.equal(held.child.exitCode, null);
    await fixture.networks.detach(slot);
  });

  void test("a change of rules keeps the addresses of names that stay allowed and cuts those of names that do not", async () => {
    const slot = await fixture.networks.attach(only("www.example.com", "other.example.net"));
    const server = slot.gatewayAddress;
    await probe(slot, [
      { try: "resolve", server, name: "www.example.com" },
      { try: "resolve", server, name: "other.example.net" },
    ]);
    await using kept = await running(slot, [{ try: "hold", host: one, port: 7 }]);
    await using lost = await running(slot, [{ try: "hold", host: eight, port: 7 }]);
    await fixture.networks.setPolicy(slot, only("*.example.com"));
    assert.match(await lost.ended, /ECONNRESET|EPIPE/);
    assert.deepEqual(
      await probe(slot, [
        { try: "tcp", host: one, port: 80 },
        { try: "tcp", host: eight, port: 80 },
        { try: "resolve", server, name: "other.example.net" },
      ]),
      ["connected", "ECONNREFUSED", "EREFUSED"],
    );
    assert.equal(kept.child.exitCode, null);
    await fixture.networks.detach(slot);
  });

  void test("names resolved before a rule change are open under the new rules, without being resolved again", async () => {
    const slot = await fixture.networks.attach(openEgress);
    await probe(slot, [{ try: "resolve", server: slot.gatewayAddress, name: "www.example.com" }]);
    await fixture.networks.setPolicy(slot, only("www.example.com"));
    assert.deepEqual(
      await probe(slot, [
        { try: "tcp", host: one, port: 80 },
        { try: "tcp", host: eight, port: 80 },
      ]),
      ["connected", "ECONNREFUSED"],
    );
    await fixture.networks.detach(slot);
  });

  void test("open addresses survive a restart of the node, and a firewall that another program emptied", async () => {
    const slot = await fixture.networks.attach(only("www.example.com"));
    await probe(slot, [{ try: "resolve", server: slot.gatewayAddress, name: "www.example.com" }]);
    await using held = await running(slot, [{ try: "hold", host: one, port: 7 }]);
    await fixture.networks.close();
    fixture = await openFixture({ home: fixture.home, dns: { upstreams: [names.upstream] } });
    await fixture.networks.adopt(slot, only("www.example.com"));
    assert.deepEqual(await probe(slot, [{ try: "tcp", host: one, port: 80 }]), ["connected"]);
    assert.equal(held.child.exitCode, null);
    // Without the table there is no NAT, so a packet sent before the table is back may end the connection.
    execFileSync("nft", ["delete", "table", "inet", tableOf(tokenOf(fixture.home))]);
    await until("the table is back", () => {
      try {
        return opened("names", slot.index).includes(one) ? true : undefined;
      } catch {
        return undefined;
      }
    });
    assert.deepEqual(
      await probe(slot, [
        { try: "tcp", host: one, port: 80 },
        { try: "tcp", host: eight, port: 80 },
      ]),
      ["connected", "ECONNREFUSED"],
    );
    // The name was restored with its address, so rules without it close the address.
    await using again = await running(slot, [{ try: "hold", host: one, port: 7 }]);
    await fixture.networks.setPolicy(slot, only("other.example.net"));
    assert.match(await again.ended, /ECONNRESET|EPIPE/);
    await fixture.networks.detach(slot);
  });
});
