// Secrets and rules by host with a real sandbox, the real SDK and servers in a namespace of their own.
// Longer than 300 lines: one node and one simulated internet serve all of it, since each takes seconds to start.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, suite, test } from "node:test";
import { forkSandbox } from "@svc/contract/lifecycle.ts";
import { getSandboxLogsV2 } from "@svc/contract/observe.ts";
import { Sandbox, Secret } from "e2b";
import { createRemoteJWKSet, jwtVerify } from "jose";
import { makeHome, removeHome } from "../src/home.ts";
import { needs } from "../src/needs.ts";
import { type Names, startNames } from "../src/network-names.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { type Outside, publicAddresses, startOutside } from "../src/outside.ts";
import { makeAuthority } from "../src/test-authority.ts";
import { until } from "../src/until.ts";

type Runtime = "gvisor" | "runc" | "bubblewrap";
type Received = { method: string; url: string; version: string; headers: Record<string, string> };

const [one, eight] = publicAddresses;
const VALUE = "s3cret-value-that-nobody-inside-may-see";

export function egressSuite(runtime: Runtime, program: string): void {
  void suite(`secrets at egress (${runtime})`, needs("root", "ip", "nft", "unshare", program), () => {
    let folder: string;
    let outside: Outside;
    let names: Names;
    let node: TestNode;
    let where: { apiUrl: string; sandboxUrl: string; apiKey: string };
    const authority = makeAuthority("test authority");
    const stranger = makeAuthority("an authority that nobody knows");

    before(async () => {
      folder = makeHome();
      writeFileSync(join(folder, "ca.pem"), authority.certificate);
      const hosts = ["api.example.com", "shared.example.com", "deep.wild.example.org", "plain.example.com"];
      outside = await startOutside({
        https: [...hosts.map((host) => authority.host(host)), authority.host("old.example.com", ["http/1.1"]), stranger.host("strange.example.com")],
      });
      names = await startNames(
        Object.fromEntries(
          [...hosts, "old.example.com", "strange.example.com"].map((name) => [name, [{ name, a: name === "plain.example.com" ? eight : one }]]),
        ),
      );
      node = await startNode({ runtime, flags: [`--network.dns=${names.upstream}`, `--egress.ca_file=${join(folder, "ca.pem")}`] });
      where = { apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey };
      await Secret.create("Api-Key", VALUE, where);
    });
    after(async () => {
      await node?.[Symbol.asyncDispose]();
      await names?.[Symbol.asyncDispose]();
      await outside?.[Symbol.asyncDispose]();
      removeHome(folder);
    });

    const header = (host: string, value: string = Secret.fill("api-key")) => ({ [host]: [{ transform: { headers: { "X-Secret": value } } }] });
    type Network = NonNullable<NonNullable<Parameters<typeof Sandbox.create>[1]>["network"]>;
    async function create(network?: Network, iam?: { tokens: Record<string, { audience: string; tokenType: string }> }) {
      const given = { ...(network === undefined ? {} : { network }), ...(iam === undefined ? {} : { iam }) };
      const sandbox = await Sandbox.create("base", { ...where, timeoutMs: 600_000, ...given });
      return { sandbox, [Symbol.asyncDispose]: async () => void (await sandbox.kill()) };
    }
    async function run(sandbox: Sandbox, command: string): Promise<string> {
      const { stdout } = await sandbox.commands.run(command, { timeoutMs: 120_000 });
      return stdout;
    }
    /** Returns stdout and stderr of a command that may fail. */
    const tried = (sandbox: Sandbox, command: string) => run(sandbox, `{ ${command}; } 2>&1 || true`);
    const received = async (sandbox: Sandbox, command: string) => JSON.parse(await run(sandbox, command)) as Received;
    const issuerOf = async (sandbox: Sandbox, host: string) =>
      /issuer: .*/.exec(await tried(sandbox, `curl -skv -o /dev/null https://${host}/`))?.[0] ?? "no certificate";
    /** Waits for an entry of the sandbox's network log. */
    const logged = (sandbox: Sandbox, what: RegExp) =>
      until(`an entry like ${what}`, async () => {
        const { logs } = await node.call(getSandboxLogsV2, { sandboxID: sandbox.sandboxId, limit: 1000 });
        return logs.find(({ message }) => what.test(message))?.message;
      });

    void test("a request to a host with rules carries the secret, and nothing inside the sandbox has it, nor any file or log of the node", async () => {
      await using made = await create({ rules: header("api.example.com", `Bearer ${Secret.fill("api-key")}`) });
      const { sandbox } = made;
      // The answer must not contain the headers, since the sandbox may see what the host sends.
      const arrived = async () => {
        const seen = (await outside.seen()).filter(({ kind }) => kind === "https").map(({ text }) => JSON.parse(text) as Received);
        return seen.map(({ url, headers }) => [url, headers["x-secret"]]);
      };
      await outside.seen();
      await run(sandbox, "curl -sS 'https://api.example.com/bytes?3' -H 'x-secret: of the program'");
      assert.deepEqual(await arrived(), [["/bytes?3", `Bearer ${VALUE}`]]);
      const inside = await run(sandbox, "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'");
      assert.ok(!inside.includes(VALUE));
      const info = await sandbox.getInfo();
      assert.deepEqual(info.network?.rules, { "api.example.com": [{ transform: { headers: { "X-Secret": `Bearer ${Secret.fill("api-key")}` } } }] });
      if (runtime === "gvisor") await sandbox.pause();
      const files = execFileSync("find", [node.home, "-xdev", "-type", "f", "-print0"], { encoding: "utf8", maxBuffer: 1 << 28 });
      const { stdout } = spawnSync("xargs", ["-0", "grep", "-laF", VALUE], { input: files, encoding: "utf8" });
      assert.equal(stdout, "", "no file of the node has the value, not even the memory of the paused sandbox");
      assert.ok(!node.log().includes(VALUE));
      if (runtime === "gvisor") await sandbox.connect();
      await run(sandbox, "curl -sS 'https://api.example.com/bytes?4'");
      assert.deepEqual(await arrived(), [["/bytes?4", `Bearer ${VALUE}`]]);
    });

    void test("a client gets the protocol that the host speaks: HTTP/2, or HTTP/1.1", async () => {
      await using made = await create({ rules: { ...header("api.example.com"), ...header("old.example.com") } });
      const { sandbox } = made;
      const python = `python3 -c "import urllib.request; print(urllib.request.urlopen('https://api.example.com/p').read().decode())"`;
      const got = [
        await received(sandbox, "curl -sS --http1.1 https://api.example.com/1"),
        await received(sandbox, "curl -sS --http2 https://api.example.com/2"),
        await received(sandbox, "curl -sS --http2 https://old.example.com/3"),
        await received(sandbox, python),
      ];
      assert.deepEqual(
        got.map(({ version, headers }) => [version, headers["x-secret"]]),
        [
          ["1.1", VALUE],
          ["2.0", VALUE],
          ["1.1", VALUE],
          ["1.1", VALUE],
        ],
      );
    });

    void test("bodies, event streams, trailers and websockets pass both ways", async () => {
      await using made = await create({ rules: header("api.example.com") });
      const { sandbox } = made;
      for (const version of ["--http1.1", "--http2"]) {
        const sum = await run(
          sandbox,
          `head -c 3000000 /dev/urandom > /tmp/body; curl -sS ${version} --data-binary @/tmp/body https://api.example.com/echo | cmp - /tmp/body && echo same`,
        );
        assert.equal(sum, "same\n", version);
        assert.equal(await run(sandbox, `curl -sS ${version} -T - https://api.example.com/echo < /tmp/body | cmp - /tmp/body && echo same`), "same\n", version);
        assert.equal(await run(sandbox, `curl -sS ${version} 'https://api.example.com/bytes?5000000' | wc -c | tr -d ' '`), "5000000\n", version);
        const times = await run(
          sandbox,
          `curl -sSN ${version} https://api.example.com/events | while read -r line; do [ -n "$line" ] && echo "$(date +%s%N) $line"; done; true`,
        );
        const at = times
          .trim()
          .split("\n")
          .map((line) => Number(line.split(" ")[0]) / 1e6);
        assert.ok(at.length === 3 && (at[2] ?? 0) - (at[0] ?? 0) > 100, `events arrived one by one: ${times}`);
        assert.match(await tried(sandbox, `curl -sSi ${version} https://api.example.com/trailers`), /x-sum: 42/i, version);
        assert.equal(await run(sandbox, `curl -sS ${version} https://api.example.com/close`), "bye", version);
        assert.match(await run(sandbox, `curl -sSI ${version} https://api.example.com/head`), /^HTTP\/[12.]+ 200/, version);
        assert.doesNotMatch(await run(sandbox, `curl -sSi ${version} https://api.example.com/`), /alt-svc/i, version);
      }
      const upgrade =
        "printf 'GET /ws HTTP/1.1\\r\\nHost: api.example.com\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\nSec-WebSocket-Version: 13\\r\\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\n\\r\\n'";
      await outside.seen();
      const script = `import socket, ssl, subprocess
head = subprocess.run(["sh", "-c", ${JSON.stringify(upgrade)}], capture_output=True).stdout
s = ssl.create_default_context().wrap_socket(socket.create_connection(("api.example.com", 443)), server_hostname="api.example.com")
s.sendall(head)
got = b""
while b"\\r\\n\\r\\n" not in got: got += s.recv(4096)
s.sendall(b"over the socket")
echo = got.split(b"\\r\\n\\r\\n", 1)[1]
while len(echo) < 15: echo += s.recv(4096)
print(got.split(b" ")[1].decode(), echo.decode())`;
      await sandbox.files.write("/tmp/ws.py", script);
      assert.equal(await run(sandbox, "python3 /tmp/ws.py"), "101 over the socket\n");
      const seen = (await outside.seen()).find(({ kind, text }) => kind === "https" && text.includes("/ws"));
      assert.equal((JSON.parse(seen?.text ?? "{}") as Received).headers["x-secret"], VALUE);
    });

    void test("a new value is used from the next request on, and a deleted secret fails the request in a sentence", async () => {
      await Secret.create("rotating", "first", where);
      await using made = await create({ rules: header("api.example.com", Secret.fill("rotating")) });
      const { sandbox } = made;
      // One connection stays open over all requests.
      const script = `import http.client, ssl, sys
c = http.client.HTTPSConnection("api.example.com", context=ssl.create_default_context())
for line in sys.stdin:
    c.request("GET", "/echo", body=b"x")
    r = c.getresponse()
    print(r.status, r.getheader("x-received"), r.read().decode().strip(), flush=True)`;
      await sandbox.files.write("/tmp/client.py", script);
      const client = await sandbox.commands.run("python3 /tmp/client.py", { background: true, stdin: true, timeoutMs: 0 });
      const ask = async (lines: number) => {
        await sandbox.commands.sendStdin(client.pid, "\n");
        return until("an answer", async () => (client.stdout.split("\n")[lines - 1 + 1] !== undefined ? client.stdout.split("\n")[lines - 1] : undefined));
      };
      assert.equal(await ask(1), "200 first x");
      const { version } = await Secret.update("rotating", "second", where);
      assert.equal(version, 2);
      assert.equal(await ask(2), "200 second x");
      assert.equal(await Secret.destroy("rotating", where), true);
      assert.match(
        (await ask(3)) ?? "",
        /^502 None svc: the rules for api.example.com cannot be applied: header 'x-secret' cannot be filled in: secret 'rotating' was not found/,
      );
      await logged(sandbox, /https api.example.com was refused: .* secret 'rotating' was not found/);
    });

    void test("hosts without rules keep their own certificate, also at an address that they share with a host that has some", async () => {
      await using made = await create({ rules: header("api.example.com") });
      const { sandbox } = made;
      assert.match(await issuerOf(sandbox, "api.example.com"), /svc egress/);
      assert.match(await issuerOf(sandbox, "shared.example.com"), /test authority/);
      assert.match(await issuerOf(sandbox, "plain.example.com"), /test authority/);
      await using other = await create();
      assert.match(await issuerOf(other.sandbox, "api.example.com"), /test authority/);
    });

    void test("a wildcard applies below its domain, and an exact entry takes precedence", async () => {
      await using made = await create({
        rules: {
          ...header("*.example.org", "wide"),
          ...header("*.wild.example.org", "closer"),
          ...header("*.example.com", "all"),
          ...header("api.example.com", "exact"),
        },
      });
      const { sandbox } = made;
      assert.equal((await received(sandbox, "curl -sS https://deep.wild.example.org/")).headers["x-secret"], "closer");
      assert.equal((await received(sandbox, "curl -sS https://api.example.com/")).headers["x-secret"], "exact");
      assert.equal((await received(sandbox, "curl -sS https://shared.example.com/")).headers["x-secret"], "all");
    });

    void test("a request for another host than the connection's is refused, and the log says so", async () => {
      await using made = await create({ rules: header("api.example.com") });
      const { sandbox } = made;
      await outside.seen();
      for (const version of ["--http1.1", "--http2"]) {
        const said = await tried(sandbox, `curl -sS -i ${version} -H 'Host: shared.example.com' https://api.example.com/`);
        assert.match(said, / 421/, version);
        assert.match(said, /both must name the same host/, version);
      }
      const raw = `import socket, ssl, sys
s = ssl.create_default_context().wrap_socket(socket.create_connection(("api.example.com", 443)), server_hostname="api.example.com")
s.sendall(sys.argv[1].replace("|", "\\r\\n").encode())
print(s.recv(4096).decode())`;
      await sandbox.files.write("/tmp/raw.py", raw);
      for (const head of [
        "GET https://shared.example.com/ HTTP/1.1|Host: api.example.com||",
        "GET / HTTP/1.1|Host: api.example.com|Host: shared.example.com||",
      ])
        assert.match(await tried(sandbox, `python3 /tmp/raw.py '${head}'`), /HTTP\/1.1 4\d\d /, head);
      assert.deepEqual(
        (await outside.seen()).filter(({ kind }) => kind === "https"),
        [],
      );
      await logged(sandbox, /https api.example.com was refused: a request for host 'shared.example.com'/);
    });

    void test("rules allow nothing: a host needs allowOut as well, and names on its address are checked one by one", async () => {
      await using made = await create({
        allowOut: ["api.example.com"],
        denyOut: ["0.0.0.0/0"],
        rules: { ...header("api.example.com"), ...header("plain.example.com") },
      });
      const { sandbox } = made;
      assert.equal((await received(sandbox, "curl -sS https://api.example.com/")).headers["x-secret"], VALUE);
      assert.match(await tried(sandbox, "curl -sS https://plain.example.com/"), /Could not resolve host/);
      const shared = await tried(sandbox, `curl -skS --resolve shared.example.com:443:${one} https://shared.example.com/`);
      assert.match(shared, /reset|error/i);
      await logged(sandbox, /https shared.example.com was refused: matches no allowOut rule/);
      const bare = await tried(sandbox, `curl -skS https://${one}/`);
      assert.match(bare, /reset|error/i);
      await logged(sandbox, /names no host \(SNI\)|names no host/);
    });

    void test("a host whose certificate the node does not accept is refused, and so is a program that pins certificates, each with its reason", async () => {
      await using made = await create({ rules: { ...header("strange.example.com"), ...header("api.example.com") } });
      const { sandbox } = made;
      assert.match(await tried(sandbox, "curl -skS https://strange.example.com/"), /reset|error/i);
      await logged(sandbox, /https strange.example.com was refused: the host's certificate is not valid for this node/);
      await sandbox.files.write("/tmp/pinned.pem", stranger.certificate);
      assert.match(await tried(sandbox, "curl -sS --cacert /tmp/pinned.pem --capath /nowhere https://api.example.com/"), /certificate/i);
      await logged(sandbox, /https api.example.com was ended .*pins its certificates/);
    });

    void test("rules that are set later apply to a sandbox that runs, and end with the call that leaves them out", async () => {
      await using made = await create();
      const { sandbox } = made;
      assert.match(await issuerOf(sandbox, "api.example.com"), /test authority/);
      await sandbox.updateNetwork({ rules: header("api.example.com") });
      // Its address is known from before.
      assert.equal((await received(sandbox, "curl -sS https://api.example.com/")).headers["x-secret"], VALUE);
      const script = "fetch('https://api.example.com/').then((r) => r.text()).then(console.log)";
      if ((await tried(sandbox, "command -v node")) !== "") assert.equal((await received(sandbox, `node -e "${script}"`)).headers["x-secret"], VALUE);
      await sandbox.updateNetwork({ rules: header("api.example.com", "changed") });
      assert.equal((await received(sandbox, "curl -sS https://api.example.com/")).headers["x-secret"], "changed");
      await sandbox.updateNetwork({});
      assert.match(await issuerOf(sandbox, "api.example.com"), /test authority/);
    });

    void test("rules stay in force over a restart of the node", async () => {
      await using made = await create({ rules: header("api.example.com") });
      const { sandbox } = made;
      assert.equal((await received(sandbox, "curl -sS https://api.example.com/")).headers["x-secret"], VALUE);
      await node.restart("SIGKILL");
      assert.equal((await received(sandbox, "curl -sS https://api.example.com/")).headers["x-secret"], VALUE);
    });

    void test("an operator's own authority replaces the node's, in sandboxes as well once their rules are set again", async () => {
      await using made = await create({ rules: header("api.example.com") });
      const { sandbox } = made;
      assert.match(await issuerOf(sandbox, "api.example.com"), /svc egress/);
      const own = makeAuthority("an authority of the operator");
      const [pem, key] = [join(node.home, "secrets/egress-ca.pem"), join(node.home, "secrets/egress-ca-key.pem")];
      writeFileSync(pem, own.certificate, { mode: 0o600 });
      writeFileSync(key, own.key, { mode: 0o600 });
      try {
        await node.restart("SIGTERM");
        await sandbox.updateNetwork({ rules: header("api.example.com") });
        assert.equal((await received(sandbox, "curl -sS https://api.example.com/")).headers["x-secret"], VALUE);
        assert.match(await issuerOf(sandbox, "api.example.com"), /an authority of the operator/);
        assert.equal(
          await run(sandbox, "grep -c '^# svc egress begin' /etc/ssl/certs/ca-certificates.crt"),
          "1\n",
          "the earlier authority is no longer trusted",
        );
      } finally {
        rmSync(key);
        rmSync(pem);
        await node.restart("SIGTERM");
      }
    });

    void test("an identity token says which sandbox a request comes from, and its key set verifies it", async () => {
      const iam = { tokens: { cloud: Secret.iamToken({ audience: "sts.example.com", tokenType: "JWT-SVID" }) } };
      await using made = await create(
        { rules: { "api.example.com": [{ transform: ({ iam }) => ({ headers: { Authorization: `Bearer ${iam.tokens["cloud"]}` } }) }] } },
        iam,
      );
      const { sandbox } = made;
      const bearer = async (of: Sandbox) => (await received(of, "curl -sS https://api.example.com/")).headers["authorization"]?.replace("Bearer ", "") ?? "";
      const keys = createRemoteJWKSet(new URL(`${node.url}/.well-known/jwks.json`));
      const discovery = (await (await fetch(`${node.url}/.well-known/openid-configuration`)).json()) as { issuer: string; jwks_uri: string };
      const { payload } = await jwtVerify(await bearer(sandbox), keys, { audience: "sts.example.com", issuer: discovery.issuer, subject: sandbox.sandboxId });
      assert.ok((payload.exp ?? 0) - (payload.iat ?? 0) <= 600);
      assert.equal(discovery.jwks_uri, `${discovery.issuer}/.well-known/jwks.json`);
      await assert.rejects(
        sandbox.updateNetwork({ rules: header("api.example.com", ["$", "{e2b.identity.tokens.other}"].join("")) }),
        /names the identity token "other".*"cloud"/,
      );
      if (runtime !== "gvisor") return;
      const [fork] = await node.call(forkSandbox, { sandboxID: sandbox.sandboxId, count: 1 });
      assert.ok(fork !== undefined && "sandbox" in fork);
      const child = await Sandbox.connect(fork.sandbox.sandboxID, where);
      assert.equal((await jwtVerify(await bearer(child), keys)).payload.sub, child.sandboxId);
      await child.kill();
    });

    void test("the SDK creates, lists, updates and destroys secrets, and no answer has a value", async () => {
      const created = await Secret.create("Mixed.Case", "hidden-1", { ...where, metadata: { team: "a" } });
      assert.deepEqual([created.name, created.version, created.metadata], ["mixed.case", 1, { team: "a" }]);
      assert.match(created.secretId, /^sec_/);
      await assert.rejects(Secret.create("mixed.CASE", "x", where), /exists already/);
      await assert.rejects(Secret.create("sec_mine", "x", where), /reserved/);
      await assert.rejects(Secret.create("a".repeat(129), "x", where), /128/);
      await assert.rejects(Secret.create("broken", "two\nlines", where), /no header may have/);
      for (const reference of ["mixed.case", created.secretId]) assert.deepEqual(await Secret.getInfo(reference, where), created);
      const updated = await Secret.update(created.secretId, "hidden-2", { ...where, metadata: { team: "b" } });
      assert.deepEqual([updated.version, updated.metadata, updated.createdAt], [2, { team: "b" }, created.createdAt]);
      await Promise.all(["page-1", "page-2", "page-3"].map((name) => Secret.create(name, "x", where)));
      const listed: string[] = [];
      for (const pages = Secret.list({ ...where, limit: 2 }); pages.hasNext; ) {
        const items = await pages.nextItems();
        assert.ok(items.length <= 2);
        assert.ok(!JSON.stringify(items).includes("hidden"));
        listed.push(...items.map(({ name }) => name));
      }
      assert.deepEqual(listed, [...listed].sort());
      assert.ok(["mixed.case", "page-1", "page-2", "page-3"].every((name) => listed.includes(name)));
      for (const name of ["mixed.case", "page-1", "page-2", "page-3"]) assert.equal(await Secret.destroy(name, where), true);
      assert.equal(await Secret.destroy("mixed.case", where), false);
      assert.equal(await Secret.exists("mixed.case", where), false);
      await assert.rejects(Secret.update("mixed.case", "x", where), /not found/i);
    });
  });
}
