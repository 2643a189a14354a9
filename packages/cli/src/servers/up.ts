// `svc up`: runs all servers of this machine under one supervisor, in the foreground or detached.
import { spawn } from "node:child_process";
import { closeSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { asFailure, Failure, fail } from "@svc/contract/failures.ts";
import { localKey } from "../access/access.ts";
import { chosenHome } from "../access/home.ts";
import { runningNode } from "../access/own-node.ts";
import {
  endProcess,
  isAlive,
  type ProcessName,
  readUpState,
  removeUpState,
  startTicksOf,
  type UpServer,
  type UpState,
  writeUpState,
} from "../access/up-state.ts";
import { EXIT_FAILURE, EXIT_USAGE, remark, UsageError } from "../output/complain.ts";
import { checkSettings } from "./programs.ts";
import { lastLines, mayFollowLater, openLog, Supervised } from "./supervise.ts";
import { clusterOf } from "./up-cluster.ts";
import { absolute, type ChosenServer, chooseServers } from "./up-flags.ts";
import { takeLock } from "./up-lock.ts";

type Options = { detach?: true; home?: string; background?: true; without?: readonly string[]; only?: readonly string[]; nodes?: number };
/** The message of the detached process to the one that started it. */
type Report =
  | { ready: readonly UpServer[]; unready: readonly string[] }
  | { alreadyUp: UpState; ignored: boolean }
  | { failed: string; details?: Failure["details"] };

const OTHER_UP_BOUND_MS = 120_000;
const POLL_MS = 50;
const RECORD_AGAIN_MS = 2_000;
const LEFTOVER_STOP_BOUND_MS = 12_000;
/** After one server failed to start, the others have this long to report their failures. */
const OTHER_FAILURES_MS = 15_000;

export async function up(flags: readonly string[], options: Options): Promise<number> {
  const home = chosenHome(options.home);
  const { nodes = 1 } = options;
  const chosen = chooseServers(flags, options);
  try {
    mkdirSync(join(home, "logs"), { recursive: true });
  } catch (error) {
    fail("SETTING_INVALID", `the home ${home} cannot be used: expected a folder that this user may write: ${(error as Error).message}`, { cause: error });
  }
  if (options.detach === true) return await upDetached(home, [...choiceOf(options), `--nodes=${nodes}`, "--", ...absolute(flags)]);
  const report = options.background === true ? reportToParent : reportToPerson;
  const lock = await takeLock(home);
  try {
    if (lock === undefined) {
      await checkAll(chosen);
      report({ alreadyUp: await otherUp(home), ignored: flags.length > 0 || choiceOf(options).length > 0 }, home);
      return 0;
    }
    const servers = nodes === 1 ? chosen : await clusterOf(home, nodes, chosen);
    await checkAll(servers);
    return await run(home, servers, (message) => report(message, home));
  } catch (error) {
    if (options.background !== true) throw error;
    const { message, details } = asFailure(error);
    reportToParent({ failed: message, details: error instanceof UsageError ? { exitCode: EXIT_USAGE } : details });
    return EXIT_FAILURE;
  } finally {
    lock?.close();
  }
}

/** Converts the choice back to flags. */
const choiceOf = ({ without = [], only = [] }: Options): string[] => [...without.map((name) => `--without=${name}`), ...only.map((name) => `--only=${name}`)];

/** Rejected settings are reported before any server starts; an error in a shared settings file is reported once. */
async function checkAll(servers: readonly ChosenServer[]): Promise<void> {
  // I51
  const failures = new Map<string, Failure>();
  for (const { name, command = [name], argv, program } of servers) {
    if (program !== undefined) continue;
    await checkSettings(command.join(" "), argv).catch((error: unknown) => failures.set(asFailure(error).message, asFailure(error)));
  }
  const [first] = failures.values();
  if (first !== undefined) throw new Failure(first.name, [...failures.keys()].join("\n"), { cause: first, details: first.details });
}

async function run(home: string, chosen: readonly ChosenServer[], report: (message: Report) => void): Promise<number> {
  await endLeftovers(home);
  const servers = new Map<string, UpServer>();
  const starting = new Map<string, ProcessName>();
  let areAllReady = false;
  let isRecorded = true;
  let end: (code: number) => void = () => {};
  const ended = new Promise<number>((resolve) => {
    end = resolve;
  });
  const inOrder = () => chosen.flatMap(({ name }) => servers.get(name) ?? []);
  const record = () => {
    const self = { pid: process.pid, startTicks: startTicksOf(process.pid) ?? 0 };
    const state = { ...self, startedAt: new Date().toISOString(), servers: inOrder(), starting: [...starting.values()], isReady: areAllReady };
    isRecorded = writeUpState(home, state);
  };
  // A full disk may have space again.
  const recording = setInterval(() => isRecorded || record(), RECORD_AGAIN_MS);
  const watcher = {
    spawned(name: string, process: ProcessName) {
      starting.set(name, process);
      record();
    },
    ready(server: UpServer) {
      const isRestart = servers.has(server.name);
      servers.set(server.name, server);
      starting.delete(server.name);
      record();
      if (isRestart) remark(`${server.name} is up again at ${server.url}`);
    },
    restarting: (name: string, why: string, delayMs: number) => remark(`${name} ${why}; starting it again in ${delayMs} ms`),
    // A crashing server does not stop the others, and it recovers once the cause is gone.
    slowed: (name: string, why: string) => remark(`${name} ${why}`),
  };
  // Signal handlers are installed before the first child exists, since no child may outlive this process.
  for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) process.once(signal, () => end(0));
  const supervised = chosen.map((server) => new Supervised({ ...server, folder: home }, watcher));
  try {
    const early = await Promise.race([startAll(supervised), ended]);
    if (typeof early === "number") return early;
    areAllReady = true;
    record();
    report({ ready: inOrder(), unready: early });
    return await ended;
  } finally {
    clearInterval(recording);
    // Nodes record in etcd that they stop, so etcd is stopped after them.
    await Promise.all(supervised.filter(({ isForeign }) => !isForeign).map((server) => server.stop()));
    await Promise.all(supervised.map((server) => server.stop()));
    removeUpState(home);
  }
}

/**
 * Resolves with the messages of the servers that could not start and are retried, since the others can run without them.
 * @throws INTERNAL with the messages of all servers that could not start, if one of them is needed or none started.
 */
async function startAll(supervised: readonly Supervised[]): Promise<readonly string[]> {
  const failures: Failure[] = [];
  const { promise: failed, resolve: onFailure } = Promise.withResolvers<void>();
  const starts = supervised.map((server) =>
    server.start().catch((error: unknown) => {
      const failure = asFailure(error);
      failures.push(failure);
      onFailure();
      if (canFollow(failure)) server.startLater("cannot start");
    }),
  );
  await Promise.race([Promise.all(starts), failed.then(() => new Promise((resolve) => setTimeout(resolve, OTHER_FAILURES_MS)))]);
  // Needed servers have their own time limit.
  if (failures.every(canFollow)) await Promise.all(starts.filter((_, at) => supervised[at]?.isNeeded));
  const [first, ...others] = failures;
  if (first === undefined) return [];
  const mayGoOn = failures.every(canFollow) && supervised.some(({ isReady }) => isReady);
  if (mayGoOn) return failures.map(({ message }) => message);
  if (others.length === 0) throw first;
  throw new Failure(first.name, failures.map(({ message }) => message).join("\n"), { cause: first });
}

const canFollow = ({ details }: Failure) => details["mayFollowLater"] === mayFollowLater.mayFollowLater;

/** Ends the servers of a killed `up`, which would still occupy the ports. Their sandboxes keep running. */
async function endLeftovers(home: string): Promise<void> {
  const state = readUpState(home);
  const endOne = async (server: ProcessName) => {
    if (isAlive(server) && !(await endProcess(server, "SIGTERM", LEFTOVER_STOP_BOUND_MS))) await endProcess(server, "SIGKILL", LEFTOVER_STOP_BOUND_MS);
  };
  await Promise.all([...(state?.servers ?? []), ...(state?.starting ?? [])].map(endOne));
  removeUpState(home);
}

async function otherUp(home: string): Promise<UpState> {
  for (let waitedMs = 0; waitedMs < OTHER_UP_BOUND_MS; waitedMs += POLL_MS) {
    const state = readUpState(home);
    if (state !== undefined && isAlive(state) && state.isReady) return state;
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
  return fail("TIMED_OUT", `another svc up on ${home} is neither ready nor gone after ${OTHER_UP_BOUND_MS / 1000} s; svc down stops one that runs`);
}

async function upDetached(home: string, args: readonly string[]): Promise<number> {
  const log = openLog(join(home, "logs", "up.log"));
  const main = fileURLToPath(new URL("../main.ts", import.meta.url));
  const child = spawn(process.execPath, [...process.execArgv, main, "up", "--background", "--home", home, ...args], {
    stdio: ["ignore", log.fd, log.fd, "ipc"],
    detached: true,
    cwd: "/",
  });
  closeSync(log.fd);
  const message = await new Promise<Report>((resolve, reject) => {
    child.once("message", (report) => resolve(report as Report));
    child.once("error", reject);
    child.once("exit", (code, signal) => resolve({ failed: `svc up ended with ${code ?? signal}; the last lines of ${log.path}:\n${lastLines(log)}` }));
  });
  if (child.connected) child.disconnect();
  child.unref();
  if ("failed" in message) throw new Failure("INTERNAL", message.failed, { details: message.details ?? {} });
  reportToPerson(message, home);
  return 0;
}

function reportToParent(message: Report): void {
  if (!process.connected) return;
  process.send?.(message, () => {
    if (process.connected) process.disconnect();
  });
}

function reportToPerson(message: Report, home: string): void {
  if ("alreadyUp" in message) {
    const { pid, servers } = message.alreadyUp;
    process.stdout.write(`already up at ${servers.map(({ url }) => url).join(", ")} (pid ${pid})\n`);
    if (message.ignored) remark("svc: it runs with the flags that it was started with, and these change nothing: svc down, then svc up with them");
    return;
  }
  if ("failed" in message) return;
  const sandboxes = message.ready.find(({ name }) => name === "node" || name === "gateway");
  const width = Math.max(...message.ready.map(({ name }) => name.length), "API key".length);
  for (const { name, url } of message.ready) process.stdout.write(`${name.padEnd(width)}  ${url}\n`);
  if (sandboxes !== undefined) {
    process.stdout.write(`${"console".padEnd(width)}  ${sandboxes.url}/console  (./svc console opens it signed in)\n`);
    process.stdout.write(`${"API key".padEnd(width)}  in ${localKey(process.env, home)?.from ?? "a place this user may not read"}\n`);
  }
  const authority = runningNode(home)?.authorityFile;
  if (authority !== undefined) {
    const variables = ["SVC_CA_FILE", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"].map((name) => `${name}=${authority}`);
    process.stdout.write(`${"trust".padEnd(width)}  export ${variables.join(" ")}\n`);
  }
  process.stdout.write(`${"logs".padEnd(width)}  ${join(home, "logs")}\n`);
  for (const why of message.unready) remark(`svc: ${why}\nsvc: the others run without it, and it is started as soon as it can be`);
}
