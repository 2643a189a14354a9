// Starts a real gateway as a separate process in front of nodes, and controls it for tests.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Answer, call, callForAnswer } from "@svc/contract/call.ts";
import type { Input, Operation, Output } from "@svc/contract/operation.ts";
import { makeHome, removeHome } from "./home.ts";
import type { Namespace } from "./namespaces.ts";
import { freePorts } from "./ports.ts";
import { endProcess, type Started, startProcess } from "./server-process.ts";

const MAIN = fileURLToPath(new URL("../../gateway/src/main.ts", import.meta.url));
const MAIN_IN_TREE = "packages/gateway/src/main.ts";

export type GatewayOptions = {
  /** The URLs of a fixed list of nodes; `etcd` lists etcd's members instead. */
  readonly nodes?: readonly string[];
  readonly etcd?: readonly string[];
  readonly apiKey: string;
  /** The root of another version's tree. */
  readonly tree?: string;
  readonly flags?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** The network namespace to run in. */
  readonly namespace?: Namespace;
};

export type TestGateway = {
  readonly home: string;
  readonly url: string;
  readonly port: number;
  readonly metricsURL: string;
  readonly apiKey: string;
  readonly pid: number;
  log(): string;
  call<T extends Operation>(operation: T, input: Input<T>): Promise<Output<T>>;
  callForAnswer<T extends Operation>(operation: T, input: Input<T>): Promise<Answer<T>>;
  /** Starts a new process on the same port; it has no state of the previous one. */
  restart(
    signal?: NodeJS.Signals,
    options?: { readonly env: Readonly<Record<string, string>> /** Of this tree from now on. */; readonly isPresent?: boolean },
  ): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
};

/** Starts a gateway that accepts requests on its own port. */
export async function startGateway({ nodes, etcd, apiKey, tree, flags = [], env: own = {}, namespace }: GatewayOptions): Promise<TestGateway> {
  const home = makeHome();
  let started: Started | undefined;
  let logged = "";
  const host = namespace?.host ?? "127.0.0.1";
  let main = tree === undefined ? MAIN : join(tree, MAIN_IN_TREE);

  async function start(port: number, env: Readonly<Record<string, string>> = {}): Promise<Started> {
    const set = [
      `--listen=${host}:${port}`,
      "--metrics-listen=127.0.0.1:0",
      `--home=${home}`,
      // A machine that stalls for a while is not a fault; a test of silence sets its own limit.
      "--gateway.node_silence_ms=20000",
      ...(nodes === undefined ? [] : [`--nodes=${nodes.join(",")}`]),
      ...(etcd === undefined ? [] : [`--etcd=${etcd.join(",")}`]),
    ];
    const onLog = (text: string) => {
      logged += text;
    };
    return startProcess(main, [...set, ...flags], { SVC_API_KEY: apiKey, ...own, ...env }, onLog, namespace);
  }

  // The port stays reserved while the gateway is down.
  const [port = 0] = await freePorts(1);
  started = await start(port);
  const url = `http://${host}:${port}`;
  let key = apiKey;
  const where = () => ({ baseURL: url, apiKey: key });
  return {
    home,
    url,
    port,
    get metricsURL() {
      return (JSON.parse(readFileSync(join(home, "node.json"), "utf8")) as { metricsURL: string }).metricsURL;
    },
    apiKey,
    get pid() {
      return started?.child.pid ?? 0;
    },
    log: () => logged,
    call: (operation, input) => call(operation, input, where()),
    callForAnswer: (operation, input) => callForAnswer(operation, input, where()),
    async restart(signal = "SIGKILL", { env, isPresent } = { env: {} }) {
      if (isPresent === true) main = MAIN;
      if (started !== undefined) await endProcess(started.child, signal);
      key = env["SVC_API_KEY"] ?? apiKey;
      started = await start(port, env);
    },
    async [Symbol.asyncDispose]() {
      if (started !== undefined) await endProcess(started.child, "SIGTERM");
      removeHome(home);
    },
  };
}
