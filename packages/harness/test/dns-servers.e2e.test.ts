// `network.dnsServers` with real sandboxes on each driver, a simulated internet with a DNS server, and a real SOCKS5 proxy.
import assert from "node:assert/strict";
import { test } from "node:test";
import { forkSandbox } from "@svc/contract/lifecycle.ts";
import { setSandboxNetwork } from "@svc/contract/network.ts";
import { createSandbox, getSandbox } from "@svc/contract/sandbox.ts";
import { Sandbox } from "e2b";
import { needs } from "../src/needs.ts";
import { startNames } from "../src/network-names.ts";
import { startNode } from "../src/node.ts";
import { hostAddress, publicAddresses, startOutside } from "../src/outside.ts";
import { startSocksServer } from "../src/socks-server.ts";

const [one] = publicAddresses;
const PASSWORD = "proxy-password";

for (const [runtime, program] of [
  ["gvisor", "runsc"],
  ["runc", "runc"],
  ["bubblewrap", "bwrap"],
] as const) {
  void test(
    `the DNS servers of a sandbox alone answer it, through its proxy if it has one (${runtime})`,
    needs("root", "ip", "nft", "unshare", program),
    async () => {
      await using outside = await startOutside();
      await using names = await startNames({});
      await using proxy = await startSocksServer({ names: {}, password: PASSWORD });
      await using node = await startNode({ runtime, flags: [`--network.dns=${names.upstream}`, "--network.proxy_cidrs=127.0.0.0/8"] });
      const where = { apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey };
      const own = outside.dnsServer;
      const { sandboxID } = await node.call(createSandbox, { templateID: "base", timeout: 600, network: { dnsServers: [own] } });
      const sandbox = await Sandbox.connect(sandboxID, where);
      const resolve = async (name: string, inside = sandbox) =>
        (await inside.commands.run(`python3 -c "import socket; print(socket.gethostbyname('${name}'))" 2>&1 || true`, { timeoutMs: 120_000 })).stdout.trim();
      const questions = async () =>
        (await outside.seen()).filter(({ kind }) => kind.startsWith("dns")).map(({ kind, peer, text }) => `${kind} ${peer} ${text}`);
      const set = (network: object) => node.call(setSandboxNetwork, { sandboxID, ...network });

      assert.equal(await resolve("first.example.org"), "8.8.8.8");
      assert.ok((await questions()).includes(`dns-udp ${hostAddress} first.example.org`));
      assert.deepEqual((await node.call(getSandbox, { sandboxID })).network?.dnsServers, [own]);
      assert.equal(await resolve("long.example.org"), "8.8.8.8", "an answer that is too long for a datagram comes over TCP");

      // The node's resolvers know no name, so an answer can only be one of the sandbox's own server.
      await node.restart("SIGKILL");
      assert.equal(await resolve("restarted.example.org"), "8.8.8.8");
      if (runtime === "gvisor") {
        const [fork] = await node.call(forkSandbox, { sandboxID, count: 1 });
        assert.ok(fork !== undefined && "sandbox" in fork);
        const child = await Sandbox.connect(fork.sandbox.sandboxID, where);
        assert.equal(await resolve("forked.example.org", child), "8.8.8.8");
        await child.kill();
        await sandbox.pause();
        await sandbox.connect();
        assert.equal(await resolve("resumed.example.org"), "8.8.8.8");
      }

      await set({ dnsServers: [`${one}:9`, own] });
      assert.equal(await resolve("second.example.org"), "8.8.8.8", "the next server is asked when one refuses");

      await set({ dnsServers: [own], egressProxy: { address: proxy.address, username: "user", password: PASSWORD } });
      await outside.seen();
      proxy.asked();
      assert.equal(await resolve("through.example.org"), "8.8.8.8");
      assert.ok(proxy.asked().some(({ host, port }) => host === own && port === 53));
      const through = await questions();
      assert.ok(through.length > 0 && through.every((question) => question.startsWith("dns-tcp ")), through.join("; "));
      await set({ dnsServers: [own], egressProxy: { address: proxy.address, username: "user", password: "wrong" } });
      assert.match(await resolve("failing.example.org"), /gaierror/, "a proxy that fails leaves no other way");
      assert.deepEqual(await questions(), []);

      for (const closed of ["10.9.9.9", hostAddress]) {
        await set({ dnsServers: [closed] });
        assert.match(await resolve("closed.example.org"), /gaierror/, closed);
      }
      await assert.rejects(set({ dnsServers: [own], denyOut: ["0.0.0.0/0"] }), /network\.dnsServers\[0\]: .*add 8\.8\.8\.8 to allowOut/);
      await set({ dnsServers: [own], denyOut: ["0.0.0.0/0"], allowOut: [own, "allowed.example.org"] });
      assert.equal(await resolve("allowed.example.org"), "8.8.8.8");
      assert.match(await resolve("denied.example.org"), /gaierror/);
      assert.deepEqual(
        names.asked().filter((asked) => asked.includes("example.org")),
        [],
        "the node's resolvers got none of the questions",
      );
      await set({});
      assert.match(await resolve("last.example.org"), /gaierror/);
      assert.ok(
        names.asked().some((asked) => asked.endsWith("last.example.org")),
        "without servers of its own the node's are asked again",
      );
      await sandbox.kill();
    },
  );
}
