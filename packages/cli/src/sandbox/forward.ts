// `svc forward`: connects ports of this machine to TCP ports inside a sandbox, or stdin and stdout to one connection.
import { createServer, type Server, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { EnvdClient } from "@svc/contract/envd.ts";
import { asFailure, Failure, fail } from "@svc/contract/failures.ts";
import { type AccessOptions, withClient } from "../access/access.ts";
import { keepAlive } from "../access/keep-alive.ts";
import { awakeSandbox } from "../access/open-envd.ts";
import { complain, EXIT_FAILURE, remark, UsageError } from "../output/complain.ts";

type Options = AccessOptions & { address: string; check: boolean; stdio?: true };
/** `local` 0 means any free port. */
export type PortPair = { readonly local: number; readonly remote: number };

/** After one of these failures no further connection can succeed. */
const FINAL = ["SANDBOX_NOT_FOUND", "SANDBOX_NOT_RUNNING", "UNAUTHENTICATED"];

export function forward(sandboxID: string, ports: readonly string[], { address, check, stdio, ...access }: Options): Promise<number> {
  const pairs = ports.map(portPair);
  const [first] = pairs;
  if (stdio === true && (pairs.length !== 1 || ports[0]?.includes(":") === true)) throw new UsageError("forward --stdio: expected one port of the sandbox");
  return withClient(access, async (client) => {
    const envd = client.envd(await awakeSandbox(client, sandboxID));
    let connections = 0;
    using alive = keepAlive(client, sandboxID, () => connections > 0 || stdio === true);
    if (stdio === true && first !== undefined) return await overStdio(await envd.openPort(first.remote));
    if (check) for (const { remote } of pairs) (await envd.openPort(remote)).destroy();
    const stopped = new AbortController();
    const end = Promise.withResolvers<number>();
    const servers: Server[] = [];
    const onSignal = () => end.resolve(0);
    for (const signal of SIGNALS) process.on(signal, onSignal);
    try {
      for (const pair of pairs) {
        const server = await listen(address, pair, (local) => {
          connections++;
          if (connections === 1) alive.extend();
          local.once("close", () => connections--);
          void join(envd, pair.remote, local, stopped.signal).catch((error: unknown) => {
            if (stopped.signal.aborted) return;
            complain(error);
            if (FINAL.includes(asFailure(error).name)) end.resolve(EXIT_FAILURE);
          });
        });
        servers.push(server);
        process.stdout.write(`${addressOf(server)} -> ${sandboxID}:${pair.remote}\n`);
      }
      return await end.promise;
    } finally {
      for (const signal of SIGNALS) process.off(signal, onSignal);
      for (const server of servers) server.close();
      // Open connections end with the command, on both sides.
      stopped.abort();
      envd.close();
    }
  });
}

const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

/** Parses `5432`, `15432:5432`, or `:5432` for a free port here. */
export function portPair(text: string): PortPair {
  const [, given, remote] = /^(?:(\d*):)?(\d+)$/.exec(text) ?? [];
  const pair = { local: Number(given === undefined ? remote : given), remote: Number(remote) };
  if (remote === undefined || pair.remote < 1 || pair.remote > 65_535 || pair.local > 65_535)
    throw new UsageError(`expected PORT, LOCAL:PORT or :PORT, with ports from 1 to 65535; got ${JSON.stringify(text)}`);
  return pair;
}

async function listen(host: string, { local, remote }: PortPair, onConnection: (socket: Socket) => void): Promise<Server> {
  // Connections are accepted paused, so that nothing is read before the remote side is connected; each half ends separately.
  const server = createServer({ allowHalfOpen: true, pauseOnConnect: true, noDelay: true }, onConnection);
  await new Promise<void>((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => {
      const advice =
        error.code === "EADDRINUSE" ? `another program listens there; choose another port: svc forward ID ${freeLocal(local)}:${remote}` : error.message;
      reject(new Failure("INVALID_REQUEST", `cannot listen on ${host}:${local}: ${advice}`, { cause: error }));
    });
    server.listen({ host, port: local }, resolve);
  });
  return server;
}

/** Returns a port to suggest in an error message. */
const freeLocal = (port: number) => (port + 10_000 <= 65_535 ? port + 10_000 : "");

function addressOf(server: Server): string {
  const bound = server.address();
  if (bound === null || typeof bound === "string") return fail("INTERNAL", "a server that listens has no address");
  return bound.family === "IPv6" ? `[${bound.address}]:${bound.port}` : `${bound.address}:${bound.port}`;
}

/** Joins an accepted connection with one inside the sandbox; backpressure and ends pass from each side to the other. */
async function join(envd: EnvdClient, port: number, local: Socket, signal: AbortSignal): Promise<void> {
  const hasLeft = new AbortController();
  const leave = () => hasLeft.abort();
  const either = AbortSignal.any([signal, hasLeft.signal]);
  local.on("error", leave).once("close", leave);
  let remote: Duplex;
  try {
    remote = await envd.openPort(port, { signal: either });
  } catch (error) {
    // The connection is reset instead of ended, since the local program must not mistake the failure for an empty answer.
    local.resetAndDestroy();
    if (hasLeft.signal.aborted) return;
    throw error;
  }
  if (either.aborted) {
    local.destroy();
    remote.destroy();
    return;
  }
  const stop = () => {
    local.destroy();
    remote.destroy();
  };
  signal.addEventListener("abort", stop);
  local.once("close", () => signal.removeEventListener("abort", stop));
  remote.on("error", () => local.resetAndDestroy()).once("close", () => local.destroySoon());
  local.on("error", () => remote.destroy()).once("close", () => remote.destroy());
  local.pipe(remote);
  remote.pipe(local);
}

/** Connects stdin and stdout to one connection, as ssh's ProxyCommand expects it. */
async function overStdio(remote: Duplex): Promise<number> {
  process.stdin.pipe(remote);
  remote.pipe(process.stdout, { end: false });
  try {
    await new Promise<void>((resolve, reject) => remote.once("end", resolve).once("close", resolve).once("error", reject));
    return 0;
  } catch (error) {
    remark(`svc: the connection broke: ${(error as Error).message}`);
    return EXIT_FAILURE;
  } finally {
    remote.destroy();
    process.stdin.destroy();
  }
}
