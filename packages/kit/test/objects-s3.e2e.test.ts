// Object storage on an S3-compatible server: the suite, refusals, and a server with temporary failures.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { startObjectServer } from "@svc/harness/object-server.ts";
import type { Objects } from "../src/objects/objects.ts";
import { openS3Objects } from "../src/objects/s3.ts";
import { credentialsFrom } from "../src/objects/s3-credentials.ts";
import { objectsSuite } from "./objects.suite.ts";

type Where = { readonly endpoint: string; readonly bucket: string; readonly env: Readonly<Record<string, string>> };

function objectsAt({ endpoint, bucket, env }: Where, prefix = "some/prefix"): Promise<Objects> {
  const credentials = credentialsFrom("", env);
  return openS3Objects({ url: `s3://${bucket}/${prefix}`, bucket, prefix, endpoint, region: "eu-test-1", pathStyle: true, concurrency: 16, credentials });
}

objectsSuite("S3-compatible storage", needs("object-server"), async () => {
  const server = await startObjectServer();
  const objects = await objectsAt(server);
  return {
    objects,
    async [Symbol.asyncDispose]() {
      await objects.close();
      await server[Symbol.asyncDispose]();
    },
  };
});

void test("two prefixes of one bucket do not see each other's objects", needs("object-server"), async () => {
  await using server = await startObjectServer();
  const [one, other, whole] = await Promise.all([objectsAt(server, "one"), objectsAt(server, "other"), objectsAt(server, "")]);
  await one.put("a", Buffer.from("1"));
  assert.equal(await other.head("a"), undefined);
  assert.equal(String(await whole.get("one/a", 10)), "1");
  await Promise.all([one.close(), other.close(), whole.close()]);
});

void test("a refused signature and a missing bucket are named, without a retry", needs("object-server"), async () => {
  await using server = await startObjectServer();
  const stranger = await objectsAt({ ...server, env: { ...server.env, AWS_SECRET_ACCESS_KEY: "wrong" } });
  await assert.rejects(stranger.put("a", Buffer.from("1")), { name: "OBJECTS_UNAVAILABLE", message: /403.*SignatureDoesNotMatch.*check the credentials/ });
  const lost = await objectsAt({ ...server, bucket: "nowhere" });
  await assert.rejects(lost.put("a", Buffer.from("1")), { name: "OBJECTS_UNAVAILABLE", message: /NoSuchBucket/ });
  await Promise.all([stranger.close(), lost.close()]);
});

/** A server that applies the next trouble of the list to each request, and answers 200 once the list is empty. */
async function startTroubled(troubles: ("cut" | "busy" | "half")[]): Promise<Where & AsyncDisposable & { readonly left: () => number }> {
  const server = createServer((request, answer) => {
    const trouble = troubles.shift();
    if (trouble === "cut") return void request.socket.destroy();
    if (trouble === "busy") return void answer.writeHead(503).end("<Error><Code>SlowDown</Code></Error>");
    if (trouble === "half") {
      answer.writeHead(200, { "content-length": "10" });
      return void answer.write("01234", () => request.socket.destroy());
    }
    request.resume().once("end", () => answer.end("0123456789"));
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  return {
    endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    bucket: "test",
    env: { AWS_ACCESS_KEY_ID: "id", AWS_SECRET_ACCESS_KEY: "secret" },
    left: () => troubles.length,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((closed) => server.close(closed));
    },
  };
}

void test("a request is retried after a cut connection, a busy server and a truncated answer", async () => {
  await using server = await startTroubled(["cut", "busy", "half"]);
  const objects = await objectsAt(server);
  assert.equal(String(await objects.get("a", 100)), "0123456789");
  assert.equal(server.left(), 0);
  await objects.close();
});

void test("a server that keeps failing is given up and named", async () => {
  await using server = await startTroubled(Array.from({ length: 100 }, () => "busy" as const));
  const objects = await objectsAt(server);
  await assert.rejects(objects.put("a", Buffer.from("1")), {
    name: "OBJECTS_UNAVAILABLE",
    message: /PUT a at http:\/\/127.0.0.1:\d+: 503 SlowDown \(6 attempts\)/,
  });
  await objects.close();
});
