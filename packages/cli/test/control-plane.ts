// A control plane on a socket for tests of the client alone: the operations it calls, over a map of sandboxes.
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

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

/** Further routes of a test: true when it answered. */
export type MoreRoutes = (
  request: IncomingMessage,
  response: ServerResponse,
  url: URL,
  body: () => Promise<Record<string, unknown>>,
) => Promise<boolean> | boolean;

export async function openControlPlane(more?: MoreRoutes) {
  const sandboxes = new Map<string, Stored>();
  const requests: string[] = [];
  /** Every API key that a request carried. */
  const keys = new Set<string>();
  let nextID = 1;
  const server = createServer(async (request, response) => {
    requests.push(`${request.method} ${request.url}`);
    const key = request.headers["x-api-key"];
    if (typeof key === "string") keys.add(key);
    const answer = (status: number, body?: unknown, headers: Record<string, string> = {}) =>
      response.writeHead(status, headers).end(body === undefined ? undefined : JSON.stringify(body));
    const refuse = (status: number, error_code: string, message: string) => answer(status, { code: status, message, error_code });
    const url = new URL(request.url ?? "", "http://x");
    if (url.pathname === "/health") return answer(204);
    // The address of an upload is its credential.
    if (request.headers["x-api-key"] !== KEY && url.pathname !== "/upload") return refuse(401, "UNAUTHENTICATED", "the API key is wrong");
    if (await more?.(request, response, url, () => bodyOf(request))) return;
    const [, first, second, third] = url.pathname.split("/");
    if (request.method === "POST" && url.pathname === "/v2/sandboxes") {
      const body = await bodyOf(request);
      if (body["templateID"] === "absent") return refuse(404, "TEMPLATE_NOT_FOUND", "there is no template absent");
      const sandboxID = `i${nextID++}`;
      sandboxes.set(sandboxID, {
        sandboxID,
        templateID: String(body["templateID"]),
        metadata: (body["metadata"] ?? {}) as Record<string, string>,
        timeout: Number(body["timeout"]),
        body,
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
    if (stored === undefined) return refuse(404, "SANDBOX_NOT_FOUND", `there is no sandbox ${second}`);
    if (request.method === "DELETE") {
      sandboxes.delete(stored.sandboxID);
      return answer(204);
    }
    if (third === "timeout") {
      stored.timeout = Number((await bodyOf(request))["timeout"]);
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

async function bodyOf(request: IncomingMessage): Promise<Record<string, unknown>> {
  let text = "";
  for await (const chunk of request) text += chunk;
  return JSON.parse(text) as Record<string, unknown>;
}
