// envd in a restored sandbox, for drivers that keep the memory: the state it keeps, and the effects of its new identity.
import assert from "node:assert/strict";
import { createHash, generateKeyPairSync, sign } from "node:crypto";
import { once } from "node:events";
import { type ClientRequest, type IncomingMessage, request } from "node:http";
import { until } from "@svc/harness/until.ts";
import type { RuntimeHandle, RuntimeName } from "@svc/sandbox/runtime/runtime.ts";
import { call, openFixture, run } from "./runtime-fixture.ts";

type It = (sentence: string, body: () => Promise<void>) => void;

const { privateKey, publicKey } = generateKeyPairSync("ed25519");
const initKey = Buffer.from(publicKey.export({ format: "jwk" }).x ?? "", "base64url").toString("base64");
const json = { "content-type": "application/json", "connect-protocol-version": "1", authorization: `Basic ${btoa("root:")}` };

const STOPPED_MS = 4_000;

let nonce = 1;
async function sendIdentity(handle: RuntimeHandle, identity: object): Promise<void> {
  const body = JSON.stringify(identity);
  nonce += 1;
  const text = `svc-init\n${nonce}\n${createHash("sha256").update(body).digest("hex")}`;
  const headers = { "x-svc-init-nonce": String(nonce), "x-svc-init-signature": sign(null, Buffer.from(text), privateKey).toString("base64") };
  const { status, body: answer } = await call(handle, "POST", "/init", headers, Buffer.from(body));
  assert.equal(status, 204, answer.toString());
}

async function ask(handle: RuntimeHandle, method: string, message: object): Promise<Record<string, unknown>> {
  const { status, body } = await call(handle, "POST", `/${method}`, json, Buffer.from(JSON.stringify(message)));
  assert.equal(status, 200, body.toString());
  return JSON.parse(body.toString()) as Record<string, unknown>;
}

type Stream = { readonly sent: ClientRequest; text: string; ended: boolean };

/** Opens a server stream that stays open; its terminal's output is collected in `text`. */
async function openStream(handle: RuntimeHandle, method: string, message: object): Promise<Stream> {
  assert.ok(handle.endpoint.kind === "tcp");
  const envelope = Buffer.from(JSON.stringify(message));
  const head = Buffer.alloc(5);
  head.writeUInt32BE(envelope.length, 1);
  const headers = { ...json, "content-type": "application/connect+json" };
  const sent = request({ host: handle.endpoint.host, port: 49983, agent: false, method: "POST", path: `/${method}`, headers });
  const stream: Stream = { sent, text: "", ended: false };
  sent.on("error", () => {
    stream.ended = true;
  });
  sent.end(Buffer.concat([head, envelope]));
  const [response] = (await once(sent, "response")) as [IncomingMessage];
  let rest = Buffer.alloc(0);
  response.on("data", (chunk: Buffer) => {
    rest = Buffer.concat([rest, chunk]);
    while (rest.length >= 5 && rest.length >= 5 + rest.readUInt32BE(1)) {
      const { event } = JSON.parse(rest.subarray(5, 5 + rest.readUInt32BE(1)).toString()) as { event?: { data?: { pty?: string } } };
      stream.text += Buffer.from(event?.data?.pty ?? "", "base64").toString();
      rest = rest.subarray(5 + rest.readUInt32BE(1));
    }
  });
  response.once("close", () => {
    stream.ended = true;
  });
  response.on("error", () => {});
  return stream;
}

export function restoredTests(name: RuntimeName, it: It): void {
  const envd = (binary: string) => ({ binary, args: ["-listen", "0.0.0.0:49983", "-init-key", initKey], env: {} });

  it("terminals and watchers of a checkpointed sandbox work in its copy, and their processes are found by pid", async () => {
    await using fixture = await openFixture(name);
    const spec = fixture.spec();
    const handle = await fixture.start({ ...spec, envd: envd(spec.envd.binary) });
    await sendIdentity(handle, { sandboxId: "parent" });
    const shell = { process: { cmd: "/bin/bash", args: ["--norc"] }, pty: { size: { cols: 80, rows: 24 } }, tag: "mine" };
    const stream = await openStream(handle, "process.Process/Start", shell);
    const input = (text: string) => ({ process: { tag: "mine" }, input: { pty: btoa(text) } });
    await ask(handle, "process.Process/SendInput", input("said=before; echo $((6*7))\n"));
    await until("the terminal answers", () => (stream.text.includes("42") ? true : undefined));
    await run(handle, "mkdir /tmp/watched");
    const { watcherId } = await ask(handle, "filesystem.Filesystem/CreateWatcher", { path: "/tmp/watched" });

    const from = await fixture.checkpoint(handle, "memory");
    const child = await fixture.start({ ...fixture.spec(), envd: envd(spec.envd.binary), from, hostname: "child" });
    await sendIdentity(child, { sandboxId: "child", hostname: "child" });
    const again = await openStream(child, "process.Process/Connect", { process: { tag: "mine" } });
    await ask(child, "process.Process/SendInput", input("echo $said $((7*8))\n"));
    await until("the copy's terminal continues", () => (again.text.includes("before 56") ? true : undefined));
    assert.ok(!stream.text.includes("before 56") && !stream.ended, "the parent's is separate");
    await run(child, "touch /tmp/watched/new");
    await until("the copy's watcher sees", async () => {
      const { events } = await ask(child, "filesystem.Filesystem/GetWatcherEvents", { watcherId });
      return JSON.stringify(events ?? []).includes("new") ? true : undefined;
    });
    await ask(handle, "process.Process/SendInput", input("exit\n"));
    await until("the parent's ends alone", () => (stream.ended ? true : undefined));
    assert.equal(again.ended, false);
    again.sent.destroy();
  });

  it("the time of a pause does not count: timeouts continue with their remaining time, and the wall clock is right", async () => {
    await using fixture = await openFixture(name);
    const spec = fixture.spec();
    const handle = await fixture.start({ ...spec, envd: envd(spec.envd.binary) });
    const secondsOf = async (of: RuntimeHandle) => {
      const program = "import time; print(time.monotonic())";
      const { stdout } = await run(
        of,
        `python3 -c '${program}'; cut -d' ' -f1 /proc/uptime; date +%s; awk '/btime/ { print $2 }' /proc/stat; cut -d' ' -f22 /proc/1/stat`,
      );
      const [clock = Number.NaN, up = Number.NaN, wall = Number.NaN, boot = Number.NaN, started = Number.NaN] = stdout.split("\n").map(Number);
      return { clock, up, wall, boot, started };
    };
    const began = performance.now();
    const before = await secondsOf(handle);
    const from = await fixture.checkpoint(handle, "memory");
    await new Promise((resolve) => setTimeout(resolve, STOPPED_MS));
    const child = await fixture.start({ ...fixture.spec(), envd: envd(spec.envd.binary), from });
    const after = await secondsOf(child);
    const tookMs = performance.now() - began;
    for (const name of ["clock", "up"] as const) {
      const grown = after[name] - before[name];
      assert.ok(grown >= 0 && grown <= (tookMs - STOPPED_MS) / 1000 + 0.1, `${name}: ${grown} s of ${tookMs} ms`);
    }
    assert.equal(after.started, before.started);
    assert.ok(after.wall - before.wall >= STOPPED_MS / 1000 - 1);
    assert.ok(Math.abs(after.boot + after.up - after.wall) <= 2, JSON.stringify(after));
  });

  it("a copy's new identity is in force immediately: names, resolver, machine id, and sudo without a wait", async () => {
    await using fixture = await openFixture(name);
    const spec = fixture.spec();
    const handle = await fixture.start({ ...spec, envd: envd(spec.envd.binary), hostname: "parent" });
    await sendIdentity(handle, { sandboxId: "parent", accessToken: "", envVars: { WHO: "parent" } });
    await run(handle, "echo '10.1.1.1 db' >>/etc/hosts");
    const machineId = "0123456789abcdef0123456789abcdef";
    for (const kind of fixture.runtime.checkpoints) {
      const from = await fixture.checkpoint(handle, kind);
      const child = await fixture.start({ ...fixture.spec(), envd: envd(spec.envd.binary), from, hostname: "child" });
      const idle = await openStream(child, "process.Process/Start", { process: { cmd: "/bin/sleep", args: ["1000"] }, tag: "idle", stdin: false });
      await sendIdentity(child, { sandboxId: "parent", generation: "1" });
      const identity = { sandboxId: "child", generation: "2", hostname: "child", machineId, nameserver: "10.77.0.1", envVars: { WHO: "child" } };
      await sendIdentity(child, { ...identity, entropy: btoa("some more"), timestamp: new Date().toISOString() });
      await until("earlier streams are ended", () => (idle.ended ? true : undefined));
      // The lookup uses IPv4 only, since no resolver would answer for the other family.
      const { stdout } = await run(
        child,
        "hostname; cat /etc/hostname /etc/machine-id; grep -c parent /etc/hosts; for name in child db; do getent ahostsv4 $name | sed -n 's/STREAM //p'; done; cat /etc/resolv.conf; echo $WHO; pgrep -c sleep",
      );
      const hosts = /127\.0\.1\.1\s+child\n10\.1\.1\.1\s+db\n/;
      assert.match(
        stdout,
        new RegExp(`^child\nchild\n${machineId}\n0\n${hosts.source}nameserver 10\\.77\\.0\\.1\n[^\n]*\nchild\n1\n$`),
        `${kind}: no process was ended`,
      );
      const sudo = await run(child, "sudo -n id -u 2>&1", "user");
      assert.deepEqual(sudo.stdout, "0\n", "sudo looks up the host name");
      await fixture.runtime.destroy(child);
    }
  });
}
