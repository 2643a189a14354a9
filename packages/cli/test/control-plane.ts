// A control plane on a socket for tests of the client alone: the operations it calls, on a map of sandboxes; each exchange is checked against the contract.
import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

import { type Exchange, foreign } from "./checked-exchange.ts";

export const KEY = "sdk_0123456789abcdef0123456789abcdef";

export type Stored = {
  sandboxID: string;
  templateID: string;
  metadata: Record<string, string>;
  timeout: number;
  body: Record<string, unknown>;
  state?: "running" | "paused";
  parentSandboxID?: string;
  forkDepth?: number;
};

/** Additional routes of a test; returns true if it answered. */
export type MoreRoutes = (request: IncomingMessage, response: ServerResponse, url: URL, body: () => Record<string, unknown>) => Promise<boolean> | boolean;

export async function openControlPlane(more?: MoreRoutes) {
  const sandboxes = new Map<string, Stored>();
  const strange: string[] = [];
  const record = (exchange: Exchange) => {
    const why = foreign(exchange);
    if (why !== undefined) strange.push(`${exchange.method} ${exchange.url.pathname} ${exchange.status}: ${why}`);
  };
  const requests: string[] = [];
  /** All API keys that requests carried. */
  const keys = new Set<string>();
  let nextID = 1;
  const server = createServer(async (request, response) => {
    requests.push(`${request.method} ${request.url}`);
    const key = request.headers["x-api-key"];
    if (typeof key === "string") keys.add(key);
    const url = new URL(request.url ?? "", "http://x");
    // The address of an upload is its credential, and its body is not JSON.
    const isUpload = url.pathname === "/upload";
    const text = isUpload ? "" : await textOf(request);
    if (!isUpload) watch(response, (status, said) => record({ method: request.method ?? "", url, body: text, status, answer: said }));
    const body = () => JSON.parse(text || "{}") as Record<string, unknown>;
    const answer = (status: number, body?: unknown, headers: Record<string, string> = {}) =>
      response.writeHead(status, headers).end(body === undefined ? undefined : JSON.stringify(body));
    const refuse = (status: number, error_code: string, message: string) => answer(status, { code: status, message, error_code });
    if (url.pathname === "/health") return answer(204);
    if (request.headers["x-api-key"] !== KEY && !isUpload) return refuse(401, "UNAUTHENTICATED", "the API key is wrong");
    if (await more?.(request, response, url, body)) return;
    const [, first, second, third] = url.pathname.split("/");
    if (request.method === "POST" && url.pathname === "/v2/sandboxes") {
      const input = body();
      if (input["templateID"] === "absent") return refuse(404, "TEMPLATE_NOT_FOUND", "template 'absent' not found");
      const sandboxID = `i${nextID++}`;
      sandboxes.set(sandboxID, {
        sandboxID,
        templateID: String(input["templateID"]),
        metadata: (input["metadata"] ?? {}) as Record<string, string>,
        timeout: Number(input["timeout"]),
        body: input,
      });
      return answer(201, { sandboxID, templateID: "t", clientID: "c", envdVersion: "0.6.13", envdAccessToken: "token" });
    }
    if (request.method === "GET" && url.pathname === "/v2/sandboxes") {
      const from = Number(url.searchParams.get("nextToken") ?? 0);
      const limit = Number(url.searchParams.get("limit") ?? 100);
      const state = url.searchParams.get("state");
      const all = [...sandboxes.values()].map(listed).filter((sandbox) => state === null || sandbox.state === state);
      return answer(200, all.slice(from, from + limit), from + limit < all.length ? { "x-next-token": String(from + limit) } : {});
    }
    const stored = first === "sandboxes" && second !== undefined ? sandboxes.get(second) : undefined;
    if (stored === undefined) return refuse(404, "SANDBOX_NOT_FOUND", `sandbox '${second}' was not found`);
    if (request.method === "DELETE") {
      sandboxes.delete(stored.sandboxID);
      return answer(204);
    }
    if (third === "timeout") {
      stored.timeout = Number(body()["timeout"]);
      return answer(204);
    }
    return answer(200, { ...listed(stored), lifecycle: { autoResume: false, onTimeout: "kill" } });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    sandboxes,
    requests,
    keys,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      assert.deepEqual(strange, [], "the real server does not speak so");
    },
  };
}

function listed({ sandboxID, templateID, metadata, timeout, state = "running", parentSandboxID, forkDepth = 0 }: Stored) {
  const endAt = new Date(Date.now() + timeout * 1000).toISOString();
  return {
    sandboxID,
    templateID,
    clientID: "c",
    startedAt: "2026-01-31T09:05:00Z",
    endAt,
    cpuCount: 2,
    memoryMB: 1024,
    diskSizeMB: 2048,
    state,
    envdVersion: "0.6.13",
    metadata,
    parentSandboxID,
    forkDepth,
  };
}

async function textOf(request: IncomingMessage): Promise<string> {
  let text = "";
  for await (const chunk of request) text += chunk;
  return text;
}

/** Reports each answer, whichever route sends it. */
function watch(response: ServerResponse, onAnswer: (status: number, text: string) => void): void {
  const end = response.end.bind(response) as (text?: string) => ServerResponse;
  response.end = ((text?: string) => {
    onAnswer(response.statusCode, text ?? "");
    return end(text);
  }) as typeof response.end;
}
