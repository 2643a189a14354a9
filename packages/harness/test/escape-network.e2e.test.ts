// Targets that a sandbox must not reach, tried from inside a running one: metadata, the host, its ports, siblings, other senders' names.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { networkInterfaces } from "node:os";
import { after, before, describe, test } from "node:test";
import { Sandbox } from "e2b";
import { needs } from "../src/needs.ts";
import { type Names, startNames } from "../src/network-names.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { hostAddress, neighbourAddress, type Outside, privateAddresses, publicAddresses, startOutside } from "../src/outside.ts";
import { until } from "../src/until.ts";

type Target = readonly [kind: string, ...args: readonly (string | number)[]];

const probe = readFileSync(new URL("../src/reach-probe.py", import.meta.url), "utf8");
const [one] = publicAddresses;
const METADATA = "169.254.169.254";
const SERVED = 8093;
/** Everything that some program accepts as the metadata service's address. */
// biome-ignore format: one list, read across
const spellings = [
  METADATA, "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "0xa9.0xfe.0xa9.0xfe", "169.254.43518", "169.16689662", "00000251.254.169.254",
  "::ffff:169.254.169.254", "::ffff:a9fe:a9fe", "64:ff9b::a9fe:a9fe", "fd00:ec2::254", "fe80::a9fe:a9fe", "169.254.169.254.",
];
const names = ["metadata.google.internal", "169.254.169.254.nip.io", "rebound.example.com"];
const urls = [
  `http://${METADATA}/latest/meta-data/`,
  "http://[::ffff:a9fe:a9fe]/",
  `http://user@${METADATA}:80/`,
  "http://0251.0376.0251.0376/",
  "http://2852039166/",
];

for (const [runtime, program] of [
  ["gvisor", "runsc"],
  ["runc", "runc"],
] as const) {
  void describe(`the network around a sandbox on ${runtime}`, needs("root", "envd", "base", "ip", "nft", "unshare", program), () => {
    let outside: Outside;
    let upstream: Names;
    let node: TestNode;
    let sandbox: Sandbox;
    let sibling: Sandbox;
    let siblingAddress = "";
    const bridge = `svct${process.pid % 10_000_000}`;
    const bridgeAddress = "172.31.254.1";
    let listener: Server;
    let arrived = 0;

    const reach = async (targets: readonly Target[]) => {
      await sandbox.files.write("/tmp/targets.json", JSON.stringify(targets), { user: "root" });
      const kernel = runtime === "gvisor" ? "" : "host-kernel";
      const { stdout } = await sandbox.commands.run(`python3 /tmp/reach-probe.py /tmp/targets.json ${kernel}`, { user: "root", timeoutMs: 0 });
      return JSON.parse(stdout) as string[];
    };
    const assertUnreached = async (targets: readonly Target[]) => {
      const outcomes = await reach(targets);
      const reached = targets.filter((_, at) => /connected|answered/.test(outcomes[at] ?? "connected"));
      assert.deepEqual(reached, []);
    };
    const create = () => Sandbox.create("base", { apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey, timeoutMs: 600_000 });

    before(async () => {
      outside = await startOutside();
      upstream = await startNames(Object.fromEntries(names.map((name) => [name, [{ name, a: METADATA }]])));
      execFileSync("ip", ["-batch", "-"], { input: `link add ${bridge} type bridge\naddr add ${bridgeAddress}/24 dev ${bridge}\nlink set ${bridge} up\n` });
      listener = createServer((socket) => {
        arrived++;
        socket.end("the host");
      });
      await new Promise<void>((resolve) => listener.listen(0, "0.0.0.0", resolve));
      node = await startNode({ runtime, flags: ["--listen=0.0.0.0:0", `--network.dns=${upstream.upstream}`] });
      [sandbox, sibling] = await Promise.all([create(), create()]);
      for (const each of [sandbox, sibling]) await each.files.write("/tmp/reach-probe.py", probe, { user: "root" });
      siblingAddress = (await sibling.commands.run("ip -4 -o addr show eth0 | awk '{print $4}' | cut -d/ -f1")).stdout.trim();
      await sibling.commands.run(`python3 -m http.server ${SERVED} --bind 0.0.0.0`, { background: true });
      await until("the sibling's server", async () =>
        (await sibling.commands.run(`curl -s -o /dev/null http://${siblingAddress}:${SERVED}/ && echo up || true`)).stdout === "up\n" ? true : undefined,
      );
    });
    after(async () => {
      await node?.[Symbol.asyncDispose]();
      listener?.close();
      await upstream?.[Symbol.asyncDispose]();
      execFileSync("ip", ["link", "del", bridge]);
      await outside?.[Symbol.asyncDispose]();
    });

    void test("the simulated internet can be reached, so that a target that cannot be reached was denied", async () => {
      assert.deepEqual(
        await reach([
          ["tcp", one, 80],
          ["udp", one, 7],
          ["url", `http://${one}/`],
        ]),
        ["connected", "answered hello", "answered 200"],
      );
    });

    void test("the metadata service and private ranges are blocked in every spelling, by name and by URL", async () => {
      await outside.seen();
      const hosts = [...spellings, ...names, ...privateAddresses];
      await assertUnreached([
        ...hosts.map((host) => ["tcp", host, 80] as const),
        ...[METADATA, ...names].map((host) => ["udp", host, 7] as const),
        ...urls.map((address) => ["url", address] as const),
      ]);
      assert.deepEqual(await outside.seen(), []);
      assert.ok(
        upstream.asked().some((question) => question.includes("rebound.example.com")),
        "the name was looked up",
      );
    });

    void test("no port of the host is open on any of its addresses: the node's, the gateway's, bridges', the translated one", async () => {
      const addresses = Object.values(networkInterfaces()).flatMap((all) => (all ?? []).map(({ address, scopeid }) => (scopeid ? `${address}%eth0` : address)));
      const gateway = (await sandbox.commands.run("ip -4 route show default | awk '{print $3}'")).stdout.trim();
      assert.match(gateway, /^\d+\./);
      assert.ok(addresses.includes(bridgeAddress) && addresses.includes(hostAddress));
      const { port } = listener.address() as { port: number };
      const ports = [...new Set([port, node.port, 22, 53, 80, 111, 443, 2375, 6443, 8000, 10_250, 49_983, ...listening().map((each) => each.port)])];
      // The gateway's only open port is the resolver, under its own number and under 53.
      const resolver = listening().filter(({ address }) => address === gateway);
      assert.equal(resolver.length, 1);
      const isResolver = (address: string, number: number) => address === gateway && [53, resolver[0]?.port].includes(number);
      const foreign = [...new Set([...addresses, gateway, "0.0.0.0"])].filter((address) => !/^(127\.|::1$|0\.0\.0\.0)/.test(address));
      const targets = foreign.flatMap((address) => ports.filter((each) => !isResolver(address, each)).map((each) => ["tcp", address, each] as const));
      await assertUnreached(targets);
      await assertUnreached(foreign.flatMap((address) => [67, 123, 161, 5353].map((each) => ["udp", address, each] as const)));
      // On the sandbox's own loopback only envd may answer.
      await assertUnreached([
        ["tcp", "127.0.0.1", node.port],
        ["tcp", "127.0.0.1", port],
        ["tcp", "::1", node.port],
        ["tcp", "127.1", port],
      ]);
      assert.equal(arrived, 0);
    });

    void test("a sibling's servers and its envd are blocked, and so are neighbours behind the host", async () => {
      await assertUnreached([
        ...[SERVED, 49_983, 22].map((port) => ["tcp", siblingAddress, port] as const),
        ["udp", siblingAddress, 7],
        ["tcp", `::ffff:${siblingAddress}`, SERVED],
      ]);
      assert.notEqual(neighbourAddress, siblingAddress);
    });

    void test("packets with another sandbox's address reach no one", async () => {
      await outside.seen();
      const texts = async () => (await outside.seen()).filter(({ kind }) => kind === "udp").map(({ text }) => text);
      const control = await reach([["packet", "", one, 7, "own"]]);
      assert.deepEqual(control, ["sent"]);
      await until("the honest packet", async () => ((await texts()).includes("own") ? true : undefined));
      const sources = [siblingAddress, hostAddress, "127.0.0.1", "8.8.8.8", "10.9.9.9"];
      await reach([...sources.map((source) => ["packet", source, one, 7, `from ${source}`] as const), ["packet", siblingAddress, siblingAddress, SERVED, "x"]]);
      await reach([["packet", "", one, 7, "last"]]);
      const seen: string[] = [];
      await until("the last packet", async () => {
        seen.push(...(await texts()));
        return seen.includes("last") ? true : undefined;
      });
      assert.deepEqual(seen, ["last"]);
    });

    void test("claiming another sandbox's address affects no neighbour's connections", async () => {
      const gateway = (await sandbox.commands.run("ip -4 route show default | awk '{print $3}'")).stdout.trim();
      await reach([
        ["claim", gateway],
        ["claim", siblingAddress],
        ["claim", one],
      ]);
      const { stdout } = await sibling.commands.run(`python3 -c "import socket; socket.create_connection(('${one}', 80), 8); print('connected')"`);
      assert.equal(stdout, "connected\n");
      const claimed = JSON.parse(execFileSync("ip", ["-j", "neigh"], { encoding: "utf8" })) as { dst: string; lladdr?: string }[];
      assert.deepEqual(
        claimed.filter(({ lladdr }) => lladdr === "02:00:00:00:00:01"),
        [],
      );
    });

    void test("the host's abstract unix sockets are neither visible nor reachable", async () => {
      const name = `svc-escape-${process.pid}-${runtime}`;
      const door = createServer(() => void arrived++);
      await new Promise<void>((resolve) => door.listen({ path: `\0${name}` }, resolve));
      const known = readFileSync("/proc/net/unix", "utf8").match(/@\S+/g) ?? [];
      assert.ok(known.some((each) => each.startsWith(`@${name}`)));
      const outcomes = await reach([
        ["links"],
        ...known.slice(0, 50).map((each) => ["abstract", each.slice(1).replace(/@+$/, "")] as const),
        ["abstract", name],
      ]);
      door.close();
      assert.equal(
        outcomes.some((outcome) => outcome === "connected"),
        false,
      );
      assert.doesNotMatch(outcomes[0] ?? "", new RegExp(name));
      assert.equal(arrived, 0);
    });
  });
}

/** Returns the TCP ports that have a listener on this host. */
function listening(): { address: string; port: number }[] {
  const lines = readFileSync("/proc/net/tcp", "utf8").split("\n").slice(1);
  return lines.flatMap((line) => {
    const [, local = "", , state] = line.trim().split(/\s+/);
    const [address = "", port = ""] = local.split(":");
    return state === "0A" ? [{ address: [...Buffer.from(address, "hex")].reverse().join("."), port: Number.parseInt(port, 16) }] : [];
  });
}
