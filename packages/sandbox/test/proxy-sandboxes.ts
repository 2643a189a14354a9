// Sandboxes behind a proxy that answer with the request they got, for tests of credentials and routes.
import assert from "node:assert/strict";
import type { RequestListener } from "node:http";
import { bodyOf, type Fixture, openFixture } from "./proxy-fixture.ts";

export type Headers = Record<string, string>;
export type Seen = { who: string; url: string; headers: Headers };

/** Sends one request on a new connection; `seen` is the request as the control plane, envd or the application got it. */
export async function ask(
  fixture: Fixture,
  path: string,
  headers: Headers,
  method = "GET",
): Promise<{ status: number; text: string; seen: Seen; body: { code: number; message: string } }> {
  const lines = Object.entries({ host: "a", connection: "close", ...headers }).map(([name, value]) => `${name}: ${value}\r\n`);
  const received = await fixture.raw(`${method} ${path} HTTP/1.1\r\n${lines.join("")}\r\n`);
  const body = bodyOf(received) as Seen & { code: number; message: string };
  assert.match(received, /\r\ncontent-length: [1-9]/i, "no body is empty");
  return { status: Number(received.slice(9, 12)), text: received, seen: body, body };
}

/** Opens a proxy whose sandboxes answer with the requests that reach envd and an application. */
export async function openSandboxes(options: Parameters<typeof openFixture>[0] = {}) {
  const fixture = await openFixture(options);
  const open = async (access: { secure?: boolean; trafficPrivate?: boolean; maskRequestHost?: string }) => {
    const sandbox = fixture.sandbox(access);
    const echo =
      (who: string): RequestListener =>
      (request, response) => {
        request.resume();
        const text = JSON.stringify({ who, url: request.url, headers: request.headers });
        response.setHeader("content-length", text.length);
        response.end(text);
      };
    await fixture.serve(sandbox.host, 49983, echo("envd"));
    const { port } = await fixture.serve(sandbox.host, 0, echo("application"));
    const to = (target: number | string, pair: "svc" | "e2b" = "svc"): Headers =>
      pair === "svc"
        ? { "x-svc-sandbox-id": sandbox.sandboxID, "x-svc-target-port": String(target) }
        : { "e2b-sandbox-id": sandbox.sandboxID, "e2b-sandbox-port": String(target) };
    return { ...sandbox, port, to };
  };
  return { fixture, open, [Symbol.asyncDispose]: () => fixture[Symbol.asyncDispose]() };
}
