// TLS of a real node with a self-signed certificate: the unmodified E2B SDKs by a domain, and the svc command.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { generateKeyPairSync } from "node:crypto";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { dirname, join } from "node:path";
import { after, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { authorityCertificate, leafCertificate, parseCertificate } from "@svc/kit/tls/x509.ts";
import { needs } from "../src/needs.ts";
import { startNode } from "../src/node.ts";

/** Python's SDK resolves names by itself, and knows that those below localhost are this machine. */
const DOMAIN = "svc.localhost";
const pythonDrive = fileURLToPath(new URL("./tls_drive.py", import.meta.url));
const javascriptDrive = fileURLToPath(new URL("./tls-drive.ts", import.meta.url));
const svc = fileURLToPath(new URL("../../cli/src/main.ts", import.meta.url));
const BOUND_MS = 300_000;
const DAY_MS = 86_400_000;

function run(program: string, words: readonly string[], env: NodeJS.ProcessEnv): Promise<{ code: number | null; out: string; said: string }> {
  const child = spawn(program, words, { env, stdio: ["ignore", "pipe", "pipe"], timeout: BOUND_MS });
  let [out, said] = ["", ""];
  child.stdout.on("data", (chunk: Buffer) => (out += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => (said += chunk.toString()));
  return new Promise((resolve, reject) => child.once("error", reject).once("close", (code) => resolve({ code, out, said })));
}

void describe("a node with TLS", needs("root", "runsc", "envd", "base", "python3"), async () => {
  const node = await startNode({ runtime: "gvisor", flags: ["--tls=self-signed"], isSecure: true });
  after(() => node[Symbol.asyncDispose]());
  const authority = join(node.home, "tls", "authority.pem");
  const { port } = new URL(node.url);
  const clean = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(E2B_|SVC_|SDK_)/.test(name)));
  const env = {
    ...clean,
    PATH: `${dirname(process.execPath)}:${process.env["PATH"]}`,
    E2B_DOMAIN: `${DOMAIN}:${port}`,
    E2B_API_KEY: node.apiKey,
    SSL_CERT_FILE: authority,
    NODE_EXTRA_CA_CERTS: authority,
    SVC_TEST_DOMAIN: DOMAIN,
  };

  void test("the Python SDK works by a domain over HTTP/2, and a stream is reset when its sandbox is killed", async () => {
    const { code, out, said } = await run("python3", ["-W", "ignore", pythonDrive], { ...env, PYTHONPATH: process.env["SVC_PYTHON_CLIENTS"] });
    assert.equal(code, 0, said);
    const seen = JSON.parse(out.trim().split("\n").at(-1) ?? "") as Record<string, string>;
    assert.deepEqual([seen["run"], seen["file"], seen["running"]], ["42\n", 500_000, false]);
    // The SDK raises it for a stream that broke once its own probe says that the sandbox is gone.
    for (const [end, text] of [
      [seen["end"], seen["text"]],
      [seen["end_async"], seen["text_async"]],
    ] as const) {
      assert.equal(end, "SandboxNotRunningException", text);
      assert.match(text ?? "", /was killed or reached its end of life while the request was in flight/);
    }
    const metrics = await (await fetch(`${node.localURL}/metrics`)).text();
    assert.match(metrics, /^svc_tls_connections_total\{outcome="h2"\} [1-9]/m, "httpx chose HTTP/2");
  });

  void test("the JavaScript SDK works by a domain, with commands, files, a port and a stream", async () => {
    const { code, out, said } = await run(process.execPath, [javascriptDrive], env);
    assert.equal(code, 0, said);
    assert.deepEqual(JSON.parse(out.trim().split("\n").at(-1) ?? ""), { run: "42\n", file: 500_000, port: "from inside", end: "error", running: false });
  });

  void test("svc works at the https URL with SVC_CA_FILE, and says what is wrong without it", async () => {
    const own = { ...clean, PATH: env.PATH, SVC_URL: `https://127.0.0.1:${port}`, SDK_API_KEY: node.apiKey, XDG_CONFIG_HOME: node.home };
    const trusted = await run(process.execPath, [svc, "list"], { ...own, SVC_CA_FILE: authority });
    assert.equal(trusted.code, 0, trusted.said);
    const unknown = await run(process.execPath, [svc, "list"], own);
    assert.match(unknown.said, /signed by an authority that this program does not trust: name the file of that authority in SVC_CA_FILE/);
    const wrongName = await run(process.execPath, [svc, "list"], { ...own, SVC_CA_FILE: authority, SVC_URL: `https://[::ffff:7f00:1]:${port}` });
    assert.match(wrongName.said, /valid for other names only/);
    const plain = await run(process.execPath, [svc, "list"], { ...own, SVC_URL: `http://127.0.0.1:${port}` });
    assert.match(plain.said, /This port speaks TLS, and got plain HTTP/);
    const tooMuch = await run(process.execPath, [svc, "list"], { ...own, SVC_URL: node.localURL.replace("http:", "https:") });
    assert.match(tooMuch.said, /it speaks plain HTTP on this port: begin the URL with http:/);
    const missing = await run(process.execPath, [svc, "list"], { ...own, SVC_CA_FILE: "/nowhere.pem" });
    assert.match(missing.said, /SVC_CA_FILE: expected the path of a file/);
  });

  void test("svc says that a server's certificate has expired", async () => {
    const keyOf = () => generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey;
    const [authorityKey, key] = [keyOf(), keyOf()];
    const at = (days: number) => new Date(Date.now() + days * DAY_MS);
    const file = join(node.home, "expired-authority.pem");
    const authority = authorityCertificate(authorityKey, "an authority", at(-10).getTime());
    writeFileSync(file, authority);
    const issuer = { key: authorityKey, certificate: parseCertificate(authority) };
    const cert = leafCertificate(issuer, { subject: "expired", key, names: ["127.0.0.1"], from: at(-10), until: at(-1) });
    const server = createServer({ cert, key: key.export({ type: "pkcs8", format: "pem" }) }).listen(0, "127.0.0.1");
    await new Promise((resolve) => server.once("listening", resolve));
    const url = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const own = { ...clean, PATH: env.PATH, SVC_URL: url, SDK_API_KEY: node.apiKey, SVC_CA_FILE: file, XDG_CONFIG_HOME: node.home };
    const { code, said } = await run(process.execPath, [svc, "list"], own);
    assert.deepEqual([code, /its certificate has expired: replace the certificate of the server/.test(said)], [1, true], said);
    await new Promise((resolve) => server.close(resolve));
  });

  void test("svc on the node's machine needs neither a URL nor the authority", async () => {
    const listed = await run(process.execPath, [svc, "list"], { ...clean, PATH: env.PATH, SVC_HOME: node.home, XDG_CONFIG_HOME: node.home });
    assert.equal(listed.code, 0, listed.said);
  });

  void test("the keys of the trial authority and of its certificate are readable by their owner alone", () => {
    for (const name of ["authority.key", "certificate.key"]) assert.equal(statSync(join(node.home, "tls", name)).mode & 0o777, 0o600);
    assert.match(readFileSync(authority, "utf8"), /BEGIN CERTIFICATE/);
  });
});
