// What svc says about a server whose certificate has expired.
import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { writeFileSync } from "node:fs";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { certificateOf } from "@svc/kit/tls/der.ts";
import { openPlace } from "./svc.ts";

const DAY_MS = 86_400_000;
const keyOf = () => generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey;

void test("svc says that a server's certificate has expired", async () => {
  await using place = openPlace();
  const [issuer, key] = [{ subject: "an authority", key: keyOf() }, keyOf()];
  const from = new Date(Date.now() - 10 * DAY_MS);
  const authority = join(place.directory, "authority.pem");
  writeFileSync(authority, certificateOf({ ...issuer, issuer, from, until: new Date(Date.now() + DAY_MS) }));
  const cert = certificateOf({ subject: "expired", key, issuer, names: ["127.0.0.1"], from, until: new Date(Date.now() - DAY_MS) });
  const server = createServer({ cert, key: key.export({ type: "pkcs8", format: "pem" }) }).listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const url = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const { code, stderr } = await place.svc(["list"], { env: { SVC_URL: url, SDK_API_KEY: "k".repeat(40), SVC_CA_FILE: authority } });
  assert.equal(code, 1);
  assert.match(stderr, /no secure connection to https:\/\/127\.0\.0\.1:\d+: its certificate has expired: replace the certificate of the server/);
  await new Promise((resolve) => server.close(resolve));
});
