// A cluster of real processes for tests: master, services and admin server, each with its own home, which tests can kill and restart.

import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { request as httpRequest, type IncomingHttpHeaders } from "node:http";
import { fileURLToPath } from "node:url";
import { endWithUs } from "@svc/harness/children.ts";
import { freeze, thaw } from "@svc/harness/freeze.ts";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { freePorts } from "@svc/harness/ports.ts";
import { until } from "@svc/harness/until.ts";
import { RpcClient } from "@svc/store/rpc/client.ts";

const programs = {
  master: fileURLToPath(new URL("../../store/src/master/main.ts", import.meta.url)),
  service: fileURLToPath(new URL("../../store/src/service/main.ts", import.meta.url)),
  admin: fileURLToPath(new URL("../src/main.ts", import.meta.url)),
} as const;

export type Server = {
  readonly url: string;
  readonly pid: number;
  readonly home: string;
  /** Everything that the process printed. */
  log(): string;
  kill(signal?: NodeJS.Signals): Promise<void>;
  /** Resolves when the process is stopped; `thaw` continues it. */
  freeze(): Promise<void>;
  thaw(): void;
  /** Starts it again with the same home and address. */
  start(): Promise<void>;
} & AsyncDisposable;

/** `flags` gets the server's port, which stays reserved for it while it is down. */
export async function startServer(kind: keyof typeof programs, flags: (port: number) => readonly string[], env: NodeJS.ProcessEnv = {}): Promise<Server> {
  const home = makeHome();
  let child: ChildProcess | undefined;
  const [port = 0] = await freePorts(1);
  let [url, said] = ["", ""];
  async function start(): Promise<void> {
    const started = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", programs[kind], `--home=${home}`, ...flags(port)], {
      stdio: ["ignore", "pipe", "pipe"],
      env: { ...process.env, ...env },
    });
    child = started;
    endWithUs(started);
    let text = "";
    const listen = (chunk: string) => {
      said += chunk;
      text += chunk;
    };
    started.stderr.setEncoding("utf8").on("data", listen);
    started.stdout.setEncoding("utf8").on("data", listen);
    await until(`a ready ${kind}`, () => {
      if (started.exitCode !== null) throw new Error(`the ${kind} ended with ${started.exitCode}: ${text}`);
      return / ready at (\S+)/.exec(text)?.[1];
    }).then((found) => (url = found));
  }
  async function kill(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
    const ending = child;
    if (ending === undefined || ending.exitCode !== null || ending.signalCode !== null) return;
    const ended = new Promise((resolve) => ending.once("exit", resolve));
    ending.kill(signal);
    await ended;
  }
  await start();
  return {
    get url() {
      return url;
    },
    get pid() {
      return child?.pid ?? 0;
    },
    home,
    log: () => said,
    kill,
    freeze: () => freeze(child?.pid as number),
    thaw: () => thaw(child?.pid as number),
    start,
    async [Symbol.asyncDispose]() {
      await kill();
      removeHome(home);
    },
  };
}

export type Cluster = {
  readonly master: Server;
  readonly admin: Server;
  readonly rpc: string;
  /** Starts another service with this stable id; `segment` returns the name of its segment. */
  addService(stableID: string, flags?: readonly string[], env?: NodeJS.ProcessEnv): Promise<Server & { segment(): Promise<string> }>;
  /** Calls the admin server, with the body as JSON if there is one. */
  ask(method: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<{ status: number; body: Body; headers: IncomingHttpHeaders }>;
  connect(): Promise<RpcClient>;
  put(service: Server, key: string, value: string): Promise<void>;
} & AsyncDisposable;

// biome-ignore lint/suspicious/noExplicitAny: answers are looked into by tests that know their shape
export type Body = any;

export type ClusterSetup = {
  readonly master?: readonly string[];
  readonly admin?: readonly string[];
  readonly env?: NodeJS.ProcessEnv;
  /** Addresses listed before the real master's. */
  readonly before?: string;
};

/** Uses a separate connection per request, since the server closes each. */
function exchange(
  method: string,
  url: string,
  body: unknown,
  headers: Record<string, string>,
): Promise<{ status: number; text: string; headers: IncomingHttpHeaders }> {
  return new Promise((resolve, reject) => {
    const call = httpRequest(url, { method, headers, agent: false }, (answer) => {
      let text = "";
      answer.setEncoding("utf8").on("data", (chunk: string) => (text += chunk));
      answer.once("end", () => resolve({ status: answer.statusCode ?? 0, text, headers: answer.headers })).once("error", reject);
    });
    // A body above the limit is answered before it has been sent, which may break the connection.
    call.once("error", reject);
    call.end(body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body));
  });
}

export async function startCluster({ master: masterFlags = [], admin: adminFlags = [], env = {}, before = "" }: ClusterSetup = {}): Promise<Cluster> {
  await using undo = new AsyncDisposableStack();
  const [rpcPort] = await freePorts(1);
  const master = undo.use(
    await startServer("master", (port) => [
      `--listen=127.0.0.1:${port}`,
      "--rpc_address=127.0.0.1",
      `--rpc_port=${rpcPort}`,
      // This far exceeds the second between two pings of a busy service.
      "--store.suspect_after_ms=5000",
      "--client_ttl=15",
      ...masterFlags,
    ]),
  );
  const rpc = `127.0.0.1:${rpcPort}`;
  const admin = undo.use(
    await startServer(
      "admin",
      (port) => [
        `--listen=127.0.0.1:${port}`,
        `--master=${before}${rpc}`,
        "--store_admin.migration_retry_base_delay_ms=100",
        "--store_admin.migration_retry_max_delay_ms=1000",
        "--store_admin.migration_poll_interval_ms=20",
        ...adminFlags,
      ],
      env,
    ),
  );
  const own = undo.move();
  return {
    master,
    admin,
    rpc,
    async addService(stableID, flags = [], ownEnv = {}) {
      const flagsOf = (port: number) => [
        "--host=127.0.0.1",
        `--port=${port}`,
        `--master_server_address=${rpc}`,
        `--stable_id=${stableID}`,
        "--global_segment_size=32mb",
        ...flags,
      ];
      const service = await startServer("service", flagsOf, ownEnv);
      own.use(service);
      // The object must not be spread, because its getters change with each start.
      return Object.assign(service, {
        segment: () =>
          until(`the segments of ${stableID}`, async () => {
            const { clients } = (await (await fetch(`${master.url}/api/v1/clients`)).json()) as {
              clients: { stable_id: string; heard: boolean; segments: string[] }[];
            };
            return clients.find((client) => client.stable_id === stableID && client.heard)?.segments[0];
          }),
      });
    },
    async ask(method, path, body, headers = {}) {
      const { status, text, headers: given } = await exchange(method, `${admin.url}${path}`, body, headers);
      return { status, body: text.startsWith("{") ? JSON.parse(text) : text, headers: given };
    },
    connect: () => RpcClient.connect("127.0.0.1", Number(rpcPort)),
    async put(service, key, value) {
      const answer = await fetch(`${service.url}/api/put`, { method: "PUT", body: JSON.stringify({ key, value }) });
      assert.equal(answer.status, 200, await answer.text());
    },
    [Symbol.asyncDispose]: () => own[Symbol.asyncDispose](),
  };
}
