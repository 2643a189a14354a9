// `network.egressProxy` with the real SDK, a real SOCKS5 server and a simulated internet: everything by TCP goes through it, or nowhere.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, suite, test } from "node:test";
import { forkSandbox } from "@svc/contract/lifecycle.ts";
import { setSandboxNetwork } from "@svc/contract/network.ts";
import { getSandboxLogsV2 } from "@svc/contract/observe.ts";
import { getSandbox } from "@svc/contract/sandbox.ts";
import { Sandbox, Secret } from "e2b";
import { makeHome, removeHome } from "../src/home.ts";
import { needs } from "../src/needs.ts";
import { type Names, startNames } from "../src/network-names.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { type Outside, publicAddresses, startOutside } from "../src/outside.ts";
import { type SocksServer, startSocksServer } from "../src/socks-server.ts";
import { makeAuthority } from "../src/test-authority.ts";
import { until } from "../src/until.ts";

const [one, eight] = publicAddresses;
const PASSWORD = "proxy-password-that-no-file-may-have";
const PLAIN = "plain.example.com";
const SECURE = "api.example.com";
const OTHER = "other.example.net";

export function egressProxySuite(runtime: "gvisor" | "runc" | "bubblewrap", program: string): void {
  void suite(`an egress proxy (${runtime})`, needs("root", "ip", "nft", "unshare", program), () => {
    const authority = makeAuthority("test authority");
    let folder: string;
    let outside: Outside;
    let names: Names;
    let proxy: SocksServer;
    let node: TestNode;
    let where: { apiUrl: string; sandboxUrl: string; apiKey: string };

    before(async () => {
      folder = makeHome();
      writeFileSync(join(folder, "ca.pem"), authority.certificate);
      outside = await startOutside({ https: [authority.host(SECURE)] });
      const at = { [PLAIN]: eight, [SECURE]: one, [OTHER]: eight };
      names = await startNames(Object.fromEntries(Object.entries(at).map(([name, a]) => [name, [{ name, a }]])));
      proxy = await startSocksServer({ names: at, password: PASSWORD });
      const flags = [`--network.dns=${names.upstream}`, "--network.proxy_cidrs=127.0.0.0/8", `--egress.ca_file=${join(folder, "ca.pem")}`];
      node = await startNode({ runtime, flags });
      where = { apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey };
    });
    after(async () => {
      await node?.[Symbol.asyncDispose]();
      await proxy?.[Symbol.asyncDispose]();
      await names?.[Symbol.asyncDispose]();
      await outside?.[Symbol.asyncDispose]();
      removeHome(folder);
    });

    type Network = NonNullable<NonNullable<Parameters<typeof Sandbox.create>[1]>["network"]>;
    const through = (over: Partial<Network> = {}, password = PASSWORD): Network => ({
      ...over,
      egressProxy: { address: proxy.address, username: "user", password },
    });
    async function create(network: Network) {
      const sandbox = await Sandbox.create("base", { ...where, timeoutMs: 600_000, network });
      return { sandbox, [Symbol.asyncDispose]: async () => void (await sandbox.kill()) };
    }
    /** Returns the body, or the exit code of curl. */
    async function get(sandbox: Sandbox, url: string, more = ""): Promise<string> {
      const command = `curl -sS -m 60 ${more} '${url}' 2>/dev/null || echo "curl failed: $?"`;
      return (await sandbox.commands.run(command, { timeoutMs: 120_000 })).stdout.trim();
    }
    const asked = () => proxy.asked().map(({ host, port }) => `${host}:${port}`);
    const logged = (sandbox: Sandbox, what: RegExp) =>
      until(`an entry like ${what}`, async () => {
        const { logs } = await node.call(getSandboxLogsV2, { sandboxID: sandbox.sandboxId, limit: 1000 });
        return logs.find(({ message }) => what.test(message))?.message;
      });
    const FAILED = /^curl failed: \d+$/;

    void test("TCP connections leave through the proxy with the user's name and password, which nobody sees afterwards", async () => {
      await using made = await create(through());
      const { sandbox } = made;
      proxy.asked();
      assert.doesNotMatch(await get(sandbox, `http://${one}/probe`), FAILED);
      assert.deepEqual(proxy.asked(), [{ host: one, port: 80, username: "user", password: PASSWORD }]);
      // The server speaks first on no port here, and the proxy passes what is neither HTTP nor TLS.
      const echo = `exec 3<>/dev/tcp/${one}/7; echo hello >&3; head -1 <&3`;
      assert.equal((await sandbox.commands.run(`bash -c '${echo}'`, { timeoutMs: 120_000 })).stdout, "hello\n");
      assert.deepEqual(asked(), [`${one}:7`]);
      const { network } = await sandbox.getInfo();
      assert.deepEqual(network?.egressProxy, { address: proxy.address, username: "user" });
      const files = execFileSync("find", [node.home, "-xdev", "-type", "f", "-print0"], { encoding: "utf8", maxBuffer: 1 << 28 });
      assert.equal(spawnSync("xargs", ["-0", "grep", "-laF", PASSWORD], { input: files, encoding: "utf8" }).stdout, "");
      assert.ok(!node.log().includes(PASSWORD));
    });

    void test("what the rules deny never reaches the proxy, and a host that rules name reaches it by its name", async () => {
      await using made = await create(through({ allowOut: [PLAIN], denyOut: ["0.0.0.0/0"] }));
      const { sandbox } = made;
      proxy.asked();
      assert.doesNotMatch(await get(sandbox, `http://${PLAIN}/probe`), FAILED);
      assert.deepEqual(asked(), [`${PLAIN}:80`]);
      assert.match(await get(sandbox, `http://${one}/probe`), FAILED);
      assert.match(await logged(sandbox, /blocked by policy: tcp 1\.1\.1\.1:80/), /matches no allowOut rule/);
      // Another site on the address that the rule opened.
      assert.match(await get(sandbox, `http://${OTHER}/probe`, `--resolve ${OTHER}:80:${eight}`), FAILED);
      assert.match(await logged(sandbox, /it names other\.example\.net/), /matches no allowOut rule/);
      assert.deepEqual(asked(), []);
    });

    void test("headers of rules are set before the connection goes through the proxy", async () => {
      await Secret.create("proxied", "value-of-the-secret", where);
      const rules = { [SECURE]: [{ transform: { headers: { "X-Secret": Secret.fill("proxied") } } }] };
      await using made = await create(through({ rules }));
      proxy.asked();
      const received = JSON.parse(await get(made.sandbox, `https://${SECURE}/`)) as { headers: Record<string, string> };
      assert.equal(received.headers["x-secret"], "value-of-the-secret");
      assert.deepEqual(asked(), [`${SECURE}:443`]);
    });

    void test("a proxy that fails means no connection, never a direct one, and the network log says why", async () => {
      await using made = await create(through());
      const { sandbox } = made;
      try {
        for (const [behaviour, why] of [
          ["garbage", /it does not speak SOCKS5/],
          ["refuses", /its rules do not allow this connection/],
          ["hangs up", /it ended the connection/],
        ] as const) {
          proxy.behaviour = behaviour;
          await outside.seen();
          assert.match(await get(sandbox, `http://${one}/probe`), FAILED, behaviour);
          assert.match(await logged(sandbox, why), /blocked: tcp 1\.1\.1\.1:80 was refused: the egress proxy/);
          assert.deepEqual(await outside.seen(), [], behaviour);
        }
      } finally {
        proxy.behaviour = "works";
      }
      await sandbox.updateNetwork(through({}, "wrong"));
      assert.match(await get(sandbox, `http://${one}/probe`), FAILED);
      await logged(sandbox, /it does not accept the user name and password/);
      await using gone = await startSocksServer({ names: {} });
      const { address } = gone;
      await gone[Symbol.asyncDispose]();
      await sandbox.updateNetwork({ egressProxy: { address } });
      assert.match(await get(sandbox, `http://${one}/probe`), FAILED);
      await logged(sandbox, /cannot be reached: .*ECONNREFUSED/);
      assert.deepEqual(await outside.seen(), []);
    });

    void test("a proxy that speaks TLS is verified by its name and authority, and a wrong one gets neither name nor password", async () => {
      const { key, certificate } = authority.host("proxy.example.com");
      await using secure = await startSocksServer({ names: {}, password: PASSWORD, tls: { key, cert: certificate } });
      const { address } = secure;
      await using made = await create({});
      const { sandbox } = made;
      // The JavaScript SDK of this release drops the member, and the Python SDK sends it.
      const set = (tls: object) =>
        node.call(setSandboxNetwork, {
          sandboxID: sandbox.sandboxId,
          egressProxy: { address, username: "user", password: PASSWORD, tls: { enabled: true, ...tls } },
        });
      await set({ serverName: "proxy.example.com", caCert: authority.certificate });
      assert.doesNotMatch(await get(sandbox, `http://${one}/probe`), FAILED);
      assert.deepEqual(secure.asked(), [{ host: one, port: 80, username: "user", password: PASSWORD }]);
      const { network: shown } = await node.call(getSandbox, { sandboxID: sandbox.sandboxId });
      assert.deepEqual(shown?.egressProxy, { address, username: "user", tls: { enabled: true, serverName: "proxy.example.com" } });
      // The node's own file of authorities counts where the sandbox names none.
      await set({ serverName: "proxy.example.com" });
      assert.doesNotMatch(await get(sandbox, `http://${one}/probe`), FAILED);
      assert.equal(secure.asked().length, 1);
      await set({});
      assert.match(await get(sandbox, `http://${one}/probe`), FAILED);
      await logged(sandbox, /the egress proxy 127\.0\.0\.1:\d+ cannot be reached: .*altnames/);
      await set({ serverName: "proxy.example.com", caCert: makeAuthority("another").certificate });
      await assert.rejects(set({ caCert: "x" }), /expected certificates of authorities in PEM/);
      assert.match(await get(sandbox, `http://${one}/probe`), FAILED);
      assert.deepEqual(secure.asked(), []);
    });

    void test("an update sets, replaces and removes the proxy, and ends connections that would now go another way", async () => {
      await using made = await create({});
      const { sandbox } = made;
      const hold = () =>
        sandbox.commands.run(`bash -c 'exec 3<>/dev/tcp/${one}/7; echo hello >&3; head -1 <&3; cat <&3'`, { background: true, timeoutMs: 600_000 });
      const greeted = async (command: Awaited<ReturnType<typeof hold>>) => until("the echo", async () => (command.stdout === "hello\n" ? true : undefined));
      const direct = await hold();
      await greeted(direct);
      proxy.asked();
      await sandbox.updateNetwork(through());
      // An open direct connection ends with its next packet.
      assert.doesNotMatch(await get(sandbox, `http://${one}/probe`), FAILED);
      assert.deepEqual(asked(), [`${one}:80`]);
      await direct.kill();
      const tunnelled = await hold();
      await greeted(tunnelled);
      assert.deepEqual(asked(), [`${one}:7`]);
      await sandbox.updateNetwork({});
      let isOver = false;
      void tunnelled.wait().then(
        () => (isOver = true),
        () => (isOver = true),
      );
      await until("the end of a connection whose way has changed", async () => (isOver ? true : undefined));
      assert.doesNotMatch(await get(sandbox, `http://${one}/probe`), FAILED);
      assert.deepEqual(asked(), [], "without a proxy connections leave directly");
    });

    void test("a fork, a resume and a node that was killed keep the proxy", async () => {
      await using made = await create(through());
      const { sandbox } = made;
      proxy.asked();
      await node.restart("SIGKILL");
      assert.doesNotMatch(await get(sandbox, `http://${one}/probe`), FAILED);
      assert.deepEqual(asked(), [`${one}:80`]);
      if (runtime !== "gvisor") return;
      await sandbox.pause();
      await sandbox.connect();
      assert.doesNotMatch(await get(sandbox, `http://${one}/probe`), FAILED);
      assert.deepEqual(asked(), [`${one}:80`]);
      const [fork] = await node.call(forkSandbox, { sandboxID: sandbox.sandboxId, count: 1 });
      assert.ok(fork !== undefined && "sandbox" in fork);
      const child = await Sandbox.connect(fork.sandbox.sandboxID, where);
      assert.doesNotMatch(await get(child, `http://${one}/probe`), FAILED);
      assert.deepEqual(asked(), [`${one}:80`]);
      await child.kill();
    });

    void test("a proxy that no sandbox may have is refused before the sandbox exists, with the reason", async () => {
      const refused = (egressProxy: Network["egressProxy"], why: RegExp) =>
        assert.rejects(Sandbox.create("base", { ...where, network: { egressProxy } } as Parameters<typeof Sandbox.create>[1]), why);
      await refused({ address: "proxy.example.com" }, /is not the address of a SOCKS5 proxy/);
      await refused({ address: "socks5://proxy.example.com:1080" }, /names no host/);
      await refused({ address: "[::1]:1080" }, /IPv6/);
      await refused({ address: "10.0.0.1:1080" }, /leads to 10\.0\.0\.1, which is closed to sandboxes and outside of network\.proxy_cidrs/);
      await refused({ address: "nowhere.example.com:1080" }, /does not resolve/);
      await refused({ address: proxy.address, password: "x" }, /needs a username/);
      await refused({ address: proxy.address, username: "u", password: Secret.fill("proxied") }, /placeholders of secrets are not filled in here/);
    });
  });
}
