// A proxy with real neighbours: a control plane on a unix socket, sandboxes on separate loopback addresses, raw clients.
import { randomBytes, randomInt } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type RequestListener, type Server } from "node:http";
import { connect, createServer as createTcpServer, type Server as NetServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import { openLog } from "@svc/kit/log.ts";
import { openMetrics } from "@svc/kit/metrics.ts";
import { openProxy, type ProxyOptions } from "../src/proxy/server.ts";
import type { Access, ProxyEntry } from "../src/records/directory.ts";

export const deploymentKey = `sdk_${"k".repeat(64)}`;

export type Fixture = Awaited<ReturnType<typeof openFixture>>;

/** The answer of the fixture's control plane: the request as it arrived. */
function describeRequest(request: Parameters<RequestListener>[0]): string {
  return JSON.stringify({ who: "control", method: request.method, url: request.url, headers: request.headers });
}

export async function openFixture(options: Partial<ProxyOptions> = {}) {
  const directory = mkdtempSync(join(tmpdir(), "svc-proxy-"));
  const control = join(directory, "control.sock");
  const entries = new Map<string, ProxyEntry>();
  const sleepers = new Map<string, Access>();
  const waking = {
    /** The recorded wakes, each with the sandbox and the client's address. */
    calls: [] as { sandboxID: string; client: string }[],
    /** Runs while a sandbox wakes; a test may replace it. */
    meanwhile: async (_sandboxID: string): Promise<void> => {},
  };
  const asleep = new Map<string, ProxyEntry>();
  const pausedWithoutWake = new Set<string>();
  const away = new Map<string, string>();
  const moving = new Map<string, PromiseWithResolvers<void>>();
  const stack = new AsyncDisposableStack();
  stack.defer(() => rmSync(directory, { recursive: true, force: true }));
  const plane = createServer((request, response) => {
    request.resume();
    const body = describeRequest(request);
    response
      .writeHead(200, { "content-type": "application/json", "content-length": Buffer.byteLength(body) })
      .end(request.method === "HEAD" ? undefined : body);
  });
  await listening(plane, { path: control });
  stack.defer(() => stop(plane));
  const metrics = openMetrics();
  const proxy = await openProxy({
    listen: { host: "127.0.0.1", port: 0 },
    control,
    directory: {
      find: (id) => entries.get(id),
      entries: () => entries.values(),
      sleeping: (id) => sleepers.get(id),
      sleepers: () => sleepers.values(),
      isPaused: (id) => pausedWithoutWake.has(id),
      isMoving: (id) => moving.has(id),
      moveOver: async (id) => moving.get(id)?.promise,
      movedTo: (id) => away.get(id),
      async wake(sandboxID, client) {
        waking.calls.push({ sandboxID, client });
        await waking.meanwhile(sandboxID);
        const entry = asleep.get(sandboxID) ?? fail("SANDBOX_NOT_FOUND", `there is no sandbox ${sandboxID}`);
        asleep.delete(sandboxID);
        sleepers.delete(sandboxID);
        entries.set(sandboxID, entry);
      },
    },
    apiKey: deploymentKey,
    log: openLog("test", "silent"),
    metrics,
    ...options,
  });
  stack.defer(() => proxy.close());
  return {
    proxy,
    metrics,
    entries,
    /** Sandboxes that moved, with their nodes. */
    away,
    waking,
    /** Pauses a sandbox like the node; it wakes as `entry`. */
    sleep(entry: ProxyEntry): void {
      entries.delete(entry.sandboxID);
      asleep.set(entry.sandboxID, entry);
      const { handle: _, ...access } = entry;
      sleepers.set(entry.sandboxID, access);
      proxy.drop(entry.sandboxID);
    },
    /** Pauses a sandbox that traffic must not resume. */
    pauseWithoutWake(sandboxID: string): void {
      entries.delete(sandboxID);
      pausedWithoutWake.add(sandboxID);
      proxy.drop(sandboxID);
    },
    /** Removes the sandbox from this node without any sign that it ended. */
    lose(sandboxID: string): void {
      pausedWithoutWake.delete(sandboxID);
    },
    /** Marks the sandbox as moving to or from another node until the returned function is called. */
    move(sandboxID: string): () => void {
      const over = Promise.withResolvers<void>();
      moving.set(sandboxID, over);
      return () => {
        moving.delete(sandboxID);
        over.resolve();
      };
    },
    /** Removes a sandbox permanently. */
    kill(sandboxID: string): void {
      entries.delete(sandboxID);
      asleep.delete(sandboxID);
      sleepers.delete(sandboxID);
      proxy.drop(sandboxID);
    },
    port: proxy.address.port,
    /** Adds a running sandbox without servers, at a separate address. */
    sandbox(access: Partial<ProxyEntry> = {}): ProxyEntry & { host: string } {
      const sandboxID = access.sandboxID ?? `i${randomBytes(10).toString("hex").slice(0, 19)}`;
      // Each sandbox has its own loopback address, since envd's port is the same in all of them.
      const host = `127.${randomInt(1, 255)}.${randomInt(1, 255)}.${randomInt(2, 255)}`;
      const handle = {
        runtime: "runc",
        runtimeID: sandboxID,
        directory,
        pid: 1,
        pidStartTicks: 1,
        endpoint: { kind: "tcp", host },
        network: undefined,
      } as const;
      const token = () => randomBytes(32).toString("hex");
      const entry = {
        sandboxID,
        handle,
        secure: true,
        trafficPrivate: false,
        envdAccessToken: token(),
        trafficAccessToken: token(),
        maskRequestHost: undefined,
        httpsPorts: [],
        ...access,
      };
      entries.set(sandboxID, entry);
      return { ...entry, host };
    },
    /** Starts an HTTP server at a sandbox's address; port 0 picks a free one. */
    async serve(host: string, port: number, listener: RequestListener): Promise<{ port: number; server: Server }> {
      const server = createServer(listener);
      await listening(server, { host, port });
      stack.defer(() => stop(server));
      return { port: portOf(server), server };
    },
    /** Starts a TCP server at a sandbox's address. */
    async serveRaw(host: string, port: number, onSocket: (socket: Socket) => void): Promise<number> {
      const sockets = new Set<Socket>();
      const server = createTcpServer((socket) => {
        sockets.add(socket);
        socket.on("error", () => {}).on("close", () => sockets.delete(socket));
        onSocket(socket);
      });
      await listening(server, { host, port });
      stack.defer(async () => {
        for (const socket of sockets) socket.destroy();
        await new Promise((resolve) => server.close(resolve));
      });
      return portOf(server);
    },
    raw: (text: string | Buffer, until?: (received: string) => boolean) => exchange(proxy.address.port, text, until),
    dial: () => dial(proxy.address.port),
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

export function listening(server: NetServer | Server, where: { host?: string; port?: number; path?: string }): Promise<void> {
  return new Promise((resolve, reject) => server.once("error", reject).listen(where, resolve));
}

export function portOf(server: NetServer | Server): number {
  const address = server.address();
  return typeof address === "object" && address !== null ? address.port : 0;
}

async function stop(server: Server): Promise<void> {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
}

/** A raw client with its received text and a wait for more. */
export function dial(port: number) {
  const socket = connect({ host: "127.0.0.1", port });
  let received = "";
  let closed = false;
  let wake = () => {};
  socket.setEncoding("latin1");
  socket.on("data", (text) => {
    received += text;
    wake();
  });
  socket.on("error", () => {});
  socket.on("close", () => {
    closed = true;
    wake();
  });
  return {
    socket,
    send: (text: string | Buffer) => socket.write(text as string, "latin1"),
    get received() {
      return received;
    },
    get closed() {
      return closed;
    },
    /** Waits until the condition holds or the connection is closed; fails after a generous bound. */
    async until(condition: (received: string, closed: boolean) => boolean): Promise<string> {
      const bound = setTimeout(() => socket.destroy(new Error("bound reached")), 20_000);
      try {
        while (!condition(received, closed)) {
          if (closed) throw new Error(`the connection closed after: ${JSON.stringify(received.slice(0, 500))}`);
          await new Promise<void>((resolve) => {
            wake = resolve;
          });
        }
      } finally {
        clearTimeout(bound);
      }
      return received;
    },
    [Symbol.dispose]: () => socket.destroy(),
  };
}

/** Sends `text` and returns everything received until the connection closes or `until` holds. */
export async function exchange(port: number, text: string | Buffer, until?: (received: string) => boolean): Promise<string> {
  using client = dial(port);
  client.send(text);
  return await client.until((received, closed) => closed || until?.(received) === true);
}

export function bodyOf(response: string): unknown {
  return JSON.parse(response.slice(response.indexOf("\r\n\r\n") + 4));
}
