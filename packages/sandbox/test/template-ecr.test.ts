// The login of Amazon's registry: its signature by the published examples, and its one call against the test's own server.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { ecrLogin, signature } from "@svc/sandbox/template/ecr.ts";

const key = { awsAccessKeyId: "AKIDEXAMPLE", awsSecretAccessKey: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", awsRegion: "us-east-1" };
const host = "123456789012.dkr.ecr.us-east-1.amazonaws.com";

void test("a request is signed like the examples of Signature Version 4", () => {
  const headers = { host: "example.amazonaws.com", "x-amz-date": "20150830T123600Z" };
  const signed = (method: string) => /Signature=(\w+)$/.exec(signature({ key, service: "service", method, path: "/", headers, body: "" }))?.[1];
  assert.equal(signed("GET"), "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
  assert.equal(signed("POST"), "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b");
});

void test("an access key becomes the registry's user and password; a refusal contains the message of AWS; other registries are refused", async () => {
  let refuses = false;
  const server = createServer((request, response) => {
    assert.match(request.headers.authorization ?? "", /^AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE\/\d{8}\/us-east-1\/ecr\/aws4_request, /);
    assert.equal(request.headers["x-amz-target"], "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken");
    if (refuses) response.statusCode = 400;
    response.end(refuses ? '{"__type":"UnrecognizedClientException"}' : JSON.stringify({ authorizationData: [{ authorizationToken: btoa("AWS:pass:word") }] }));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  const signal = new AbortController().signal;
  assert.deepEqual(await ecrLogin(key, host, signal, endpoint), { username: "AWS", password: "pass:word" });
  refuses = true;
  await assert.rejects(ecrLogin(key, host, signal, endpoint), /AWS refused the access key: HTTP 400 .*UnrecognizedClient/);
  server.close();
  await assert.rejects(ecrLogin(key, "registry.example", signal), /is not a registry of AWS/);
});
