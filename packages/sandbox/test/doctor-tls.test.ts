// The lines of `svc doctor` about the certificate that a running node serves.
import assert from "node:assert/strict";
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { openLog } from "@svc/kit/log.ts";
import { openMetrics } from "@svc/kit/metrics.ts";
import { Certificates } from "@svc/kit/tls/certificates.ts";
import { keepSelfSigned } from "@svc/kit/tls/self-signed.ts";
import { tlsChecks } from "../src/doctor/tls.ts";

void test("doctor says until when the certificate is valid, and that changed files cannot be served", async () => {
  const home = mkdtempSync(join(tmpdir(), "svc-doctor-tls-"));
  assert.deepEqual(await tlsChecks(home), [], "a home whose node does not run");
  const pair = keepSelfSigned(join(home, "own"), ["localhost"]);
  const files = { certFile: join(home, "cert.pem"), keyFile: join(home, "key.pem") };
  copyFileSync(pair.certFile, files.certFile);
  copyFileSync(pair.keyFile, files.keyFile);
  const metrics = openMetrics();
  const certificates = new Certificates({ choice: { kind: "files", ...files }, home, domains: [], log: openLog("test", "silent"), metrics });
  const server = createServer((_, response) => void metrics.text().then((text) => response.end(text))).listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  writeFileSync(join(home, "node.json"), JSON.stringify({ address: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }));
  const lines = async () => JSON.stringify(await tlsChecks(home));
  assert.match(await lines(), /valid until \d{4}-\d\d-\d\d/);
  writeFileSync(files.keyFile, "no key");
  for (let round = 0; round < 200 && !/cannot be served/.test(await lines()); round++) await sleep(100);
  assert.match(await lines(), /the files have changed and cannot be served; the earlier certificate is valid until/);
  certificates.close();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  rmSync(home, { recursive: true, force: true });
});
