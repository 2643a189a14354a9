// The bounds of the port with TLS: handshakes, floods of resets, slow readers, and certificates that change under load.
import assert from "node:assert/strict";
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { constants } from "node:http2";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { connect as connectTls } from "node:tls";
import { openLog } from "@svc/kit/log.ts";
import { openMetrics } from "@svc/kit/metrics.ts";
import { Certificates } from "@svc/kit/tls/certificates.ts";
import { keepSelfSigned } from "@svc/kit/tls/self-signed.ts";
import { answerOf, ask, DOMAIN, openTlsFixture } from "./tls-fixture.ts";

const [HEADERS, RST_STREAM, SETTINGS] = [1, 3, 4];
const END_OF_BOTH = 0x5;
const MAX_OPENED = 100_000;

function frame(type: number | undefined, flags: number, stream: number, payload = Buffer.alloc(0)): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head.writeUInt8(type ?? 0, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

/** GET / by https in HPACK: three entries of the static table, and the authority as a literal. */
const headersOf = (authority: string) => Buffer.concat([Buffer.of(0x82, 0x87, 0x84, 0x01, authority.length), Buffer.from(authority)]);

const ended = (socket: Socket) => new Promise<void>((resolve) => socket.once("close", () => resolve()));

async function untilTrue(condition: () => boolean | Promise<boolean>): Promise<void> {
  for (let round = 0; round < 600; round++) {
    if (await condition()) return;
    await sleep(50);
  }
  assert.fail("the condition did not hold in time");
}

void test("a connection that begins no handshake, or never ends it, is closed after the limit", async () => {
  await using fixture = await openTlsFixture({ tlsLimits: { handshakeMs: 300 } });
  const silent = connect({ host: "127.0.0.1", port: fixture.port }).on("error", () => {});
  const stuck = connect({ host: "127.0.0.1", port: fixture.port }).on("error", () => {});
  stuck.write(Buffer.from("160301", "hex"));
  for (const socket of [silent, stuck]) socket.resume();
  await Promise.all([ended(silent), ended(stuck)]);
  assert.match(await fixture.metrics.text(), /^svc_tls_connections_total\{outcome="timed_out"\} 2$/m);
});

void test("unfinished handshakes of one address do not keep a client from its own", async () => {
  await using fixture = await openTlsFixture({ tlsLimits: { handshakes: 20, handshakesPerPeer: 10, freeHandshakes: 2 } });
  const stuck = Array.from({ length: 50 }, () => {
    const socket = connect({ host: "127.0.0.1", port: fixture.port }).on("error", () => {});
    socket.write(Buffer.from("160301", "hex"));
    return socket;
  });
  await untilTrue(async () => /^svc_tls_connections_total\{outcome="refused"\} 40$/m.test(await fixture.metrics.text()));
  const answer = await new Promise<string>((resolve, reject) => {
    const other = connect({ host: "127.0.0.1", port: fixture.port, localAddress: "127.0.0.9" });
    const socket = connectTls({ socket: other, ca: fixture.ca, servername: `api.${DOMAIN}` });
    socket.once("error", reject).once("secureConnect", () => socket.write(`GET / HTTP/1.1\r\nHost: api.${DOMAIN}\r\nConnection: close\r\n\r\n`));
    socket.once("data", (text: Buffer) => resolve(text.toString("latin1")));
  });
  assert.match(answer, /^HTTP\/1\.1 200 OK/);
  for (const socket of stuck) socket.destroy();
});

void test("a client that opens and resets streams without end is cut off, and others are served meanwhile", async () => {
  await using fixture = await openTlsFixture();
  const sandbox = fixture.sandbox();
  let requests = 0;
  const { port } = await fixture.serve(sandbox.host, 0, () => void requests++);
  const name = `${port}-${sandbox.sandboxID}.${DOMAIN}`;
  const flood = await fixture.secure(name, ["h2"]);
  flood.resume();
  const isClosed = { now: false };
  flood.once("close", () => (isClosed.now = true));
  flood.write(Buffer.concat([Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(SETTINGS, 0, 0)]));
  const other = await fixture.session(`api.${DOMAIN}`);
  let opened = 0;
  const flooding = (async () => {
    while (!isClosed.now && opened < MAX_OPENED) {
      const pieces: Buffer[] = [];
      for (let at = 0; at < 100; at++) {
        const stream = 2 * opened++ + 1;
        pieces.push(frame(HEADERS, END_OF_BOTH, stream, headersOf(name)), frame(RST_STREAM, 0, stream, Buffer.of(0, 0, 0, constants.NGHTTP2_CANCEL)));
      }
      if (!flood.write(Buffer.concat(pieces))) await Promise.race([new Promise((resolve) => flood.once("drain", resolve)), ended(flood)]);
      await new Promise((resolve) => setImmediate(resolve));
    }
  })();
  for (let round = 0; round < 20; round++) assert.equal((await ask(other, { ":path": "/sandboxes", ":authority": `api.${DOMAIN}` })).status, 200);
  await flooding;
  assert.ok(opened < MAX_OPENED, `the flood went on: ${opened} streams`);
  assert.ok(requests < 1_000, `${requests} requests reached the application`);
  // The streams of the flood are closed.
  await untilTrue(async () => /^svc_http2_streams 0$/m.test(await fixture.metrics.text()));
});

void test("a reader that stops reading holds its own stream only, and the sandbox is slowed instead of memory filled", async () => {
  await using fixture = await openTlsFixture();
  const sandbox = fixture.sandbox();
  let written = 0;
  const { port } = await fixture.serve(sandbox.host, 0, (request, response) => {
    if (request.url === "/small") return void response.end("small");
    const piece = Buffer.alloc(64 * 1024);
    const write = () => {
      while (!response.destroyed && written < 200_000_000) {
        written += piece.length;
        if (!response.write(piece)) return void response.once("drain", write);
      }
    };
    write();
  });
  const name = `${port}-${sandbox.sandboxID}.${DOMAIN}`;
  const session = await fixture.session(name);
  const slow = session.request({ ":path": "/large" });
  slow.on("error", () => {});
  await new Promise((resolve) => slow.once("response", resolve));
  let before = -1;
  await untilTrue(async () => {
    const isSettled = written === before;
    before = written;
    await sleep(200);
    return isSettled;
  });
  assert.ok(written < 50_000_000, `${written} bytes were taken from the sandbox`);
  assert.equal((await ask(session, { ":path": "/small" })).body, "small");
  slow.close();
});

void test("a new certificate is served without a lost request, and a broken pair keeps the old one", async () => {
  const folder = mkdtempSync(join(tmpdir(), "svc-tls-files-"));
  const [first, second] = ["a", "b"].map((each) => keepSelfSigned(join(folder, each), [DOMAIN, `*.${DOMAIN}`]));
  const files = { certFile: join(folder, "cert.pem"), keyFile: join(folder, "key.pem") };
  const use = (pair = first) => {
    copyFileSync(pair?.keyFile ?? "", files.keyFile);
    copyFileSync(pair?.certFile ?? "", files.certFile);
  };
  use();
  const metrics = openMetrics();
  const certificates = new Certificates({ choice: { kind: "files", ...files }, home: folder, domains: [], log: openLog("test", "silent"), metrics });
  await using fixture = await openTlsFixture({ certificates });
  const presented = () =>
    new Promise<string>((resolve, reject) => {
      const socket = connectTls({ host: "127.0.0.1", port: fixture.port, rejectUnauthorized: false, servername: `api.${DOMAIN}` });
      socket.once("error", reject).once("secureConnect", () => {
        resolve(socket.getPeerX509Certificate()?.fingerprint256 ?? "");
        socket.destroy();
      });
    });
  const session = await fixture.session(`api.${DOMAIN}`, { rejectUnauthorized: false });
  const old = await presented();
  let isOver = false;
  let served = 0;
  const load = (async () => {
    while (!isOver) {
      assert.equal((await answerOf(session.request({ ":path": "/sandboxes", ":authority": `api.${DOMAIN}` }))).status, 200);
      await presented();
      served++;
    }
  })();
  use(second);
  await untilTrue(async () => (await presented()) !== old);
  const renewed = await presented();
  writeFileSync(files.certFile, readFileSync(files.certFile, "utf8").slice(0, 200));
  await untilTrue(async () => /^svc_tls_reloads_total\{outcome="refused"\} 1$/m.test(await metrics.text()));
  assert.match(await metrics.text(), /^svc_tls_certificate_refused 1$/m);
  assert.equal(await presented(), renewed);
  use();
  await untilTrue(async () => (await presented()) === old);
  assert.match(await metrics.text(), /^svc_tls_certificate_refused 0$/m);
  isOver = true;
  await load;
  assert.ok(served > 0);
  rmSync(folder, { recursive: true, force: true });
});

void test("a certificate that cannot be used stops the start with a sentence", () => {
  const folder = mkdtempSync(join(tmpdir(), "svc-tls-files-"));
  const [one, other] = ["a", "b"].map((each) => keepSelfSigned(join(folder, each), [DOMAIN]));
  const open = (certFile = "", keyFile = "") =>
    new Certificates({ choice: { kind: "files", certFile, keyFile }, home: folder, domains: [], log: openLog("test", "silent"), metrics: openMetrics() });
  assert.throws(() => open(join(folder, "none.pem"), one?.keyFile), /none\.pem cannot be read \(ENOENT\)/);
  assert.throws(() => open(one?.certFile, other?.keyFile), /is not the key of the certificate in/);
  assert.throws(() => open(one?.keyFile, one?.keyFile), /is not a certificate in PEM/);
  rmSync(folder, { recursive: true, force: true });
});
