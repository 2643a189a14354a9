// Starts a real etcd for tests: one or three members, each a process that can be killed, stopped and restarted; all end with the test.

import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { get } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { roleName } from "@svc/kit/peers/roles.ts";
import { endWithUs } from "./children.ts";
import { freeze, thaw } from "./freeze.ts";
import type { PeerCerts } from "./peer-certs.ts";
import { freePorts } from "./ports.ts";
import { until } from "./until.ts";

export type EtcdMember = {
  /** `http://127.0.0.1:PORT` for clients; it stays the same after a restart. */
  readonly url: string;
  readonly pid: number;
  /** Resolves when the process is stopped; `thaw` continues it. */
  freeze(): Promise<void>;
  thaw(): void;
  /** Sends SIGKILL and waits for the process to end. */
  kill(): Promise<void>;
  /** Starts a new process on the same ports and data. */
  start(): Promise<void>;
  /** Sends SIGKILL and starts an empty one; only for a single member. */
  wipe(): Promise<void>;
};

export type TestEtcd = AsyncDisposable & {
  readonly endpoints: readonly string[];
  readonly members: readonly EtcdMember[];
  /** Waits until every member serves writes. */
  healthy(): Promise<void>;
};

const START_ATTEMPTS = 20;
/** With `certs`, clients need a certificate of that authority, and the URLs begin with https. */
export async function startEtcd(size: 1 | 3 = 1, certs?: PeerCerts): Promise<TestEtcd> {
  for (let attempt = 1; ; attempt++) {
    const begun = await begin(size, certs);
    if (begun !== undefined) return begun;
    if (attempt === START_ATTEMPTS) throw new Error("etcd ends at its start");
  }
}

/** Returns undefined if another process took a port meanwhile. */
async function begin(size: number, certs: PeerCerts | undefined): Promise<TestEtcd | undefined> {
  const folder = mkdtempSync(join(tmpdir(), "svc-test-etcd-"));
  const ports = await freePorts(size * 2);
  const peerOf = (index: number) => `http://127.0.0.1:${ports[size + index]}`;
  const cluster = Array.from({ length: size }, (_, index) => `m${index}=${peerOf(index)}`).join(",");
  const members = Array.from({ length: size }, (_, index) =>
    openMember(`m${index}`, `${certs === undefined ? "http" : "https"}://127.0.0.1:${ports[index]}`, peerOf(index), cluster, folder, certs),
  );
  const end = async () => {
    await Promise.all(members.map((member) => member.kill()));
    rmSync(folder, { recursive: true, force: true });
  };
  const healthy = async () => {
    await Promise.all(
      members.map((member) => until(`${member.url} serves`, async () => member.hasEnded() || (await isHealthy(member.url, member.files)) || undefined)),
    );
  };
  for (const member of members) member.spawn();
  await healthy();
  if (members.some((member) => member.hasEnded())) return end().then(() => undefined);
  return { endpoints: members.map(({ url }) => url), members, healthy, [Symbol.asyncDispose]: end };
}

function openMember(name: string, url: string, peer: string, cluster: string, folder: string, certs: PeerCerts | undefined) {
  const own = certs?.issue("etcd", `etcd-${name}`);
  const files = own === undefined ? undefined : certs?.files(own);
  const secure =
    own === undefined ? [] : ["--client-cert-auth", "--trusted-ca-file", `${own}/ca.crt`, "--cert-file", `${own}/tls.crt`, "--key-file", `${own}/tls.key`];
  const data = join(folder, name);
  let child: ChildProcess | undefined;
  const hasEnded = () => child === undefined || child.exitCode !== null || child.signalCode !== null;

  function begin(): void {
    const flags = [
      ["--name", name],
      ["--data-dir", data],
      ["--listen-client-urls", url],
      ["--advertise-client-urls", url],
      ["--listen-peer-urls", peer],
      ["--initial-advertise-peer-urls", peer],
      ["--initial-cluster", cluster],
      ["--unsafe-no-fsync"],
      secure,
    ].flat();
    const env = { ...process.env, ...(process.arch === "arm64" ? { ETCD_UNSUPPORTED_ARCH: "arm64" } : {}) };
    const started = spawn("etcd", flags, { stdio: "ignore", env });
    endWithUs(started);
    started.once("error", () => undefined);
    child = started;
  }
  async function kill(): Promise<void> {
    if (child === undefined || hasEnded()) return;
    const ended = new Promise((resolve) => child?.once("exit", resolve));
    child.kill("SIGKILL");
    await ended;
  }
  /** Its ports may stay occupied for a moment. */
  async function start(): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      begin();
      const answers = await until(`${url} answers`, async () => (hasEnded() ? "ended" : (await answersAtAll(url, files)) ? "answers" : undefined));
      if (answers === "answers") return;
      if (attempt === START_ATTEMPTS) throw new Error(`etcd at ${url} ends at its start`);
    }
  }
  return {
    url,
    files,
    get pid() {
      return child?.pid ?? 0;
    },
    hasEnded,
    spawn: begin,
    freeze: () => freeze(child?.pid as number),
    thaw: () => thaw(child?.pid as number),
    kill,
    start,
    async wipe() {
      await kill();
      rmSync(data, { recursive: true, force: true });
      await start();
    },
  };
}

/** /health writes through the leader; /version does not need one. */
const isHealthy = async (url: string, files: Files) => (await ask(`${url}/health`, files)) === true;
const answersAtAll = async (url: string, files: Files) => (await ask(`${url}/version`, files)) !== undefined;

type Files = ReturnType<PeerCerts["files"]> | undefined;

async function ask(url: string, files: Files): Promise<boolean | undefined> {
  if (files !== undefined)
    return new Promise((resolve) => {
      const sent = get(url, { ...files, servername: roleName("etcd"), agent: false, timeout: 2_000 }, (answer) => resolve(answer.resume().statusCode === 200));
      sent.once("timeout", () => sent.destroy()).once("error", () => resolve(undefined));
    });
  return fetch(url, { signal: AbortSignal.timeout(2_000) }).then(
    (answer) => answer.ok,
    () => undefined,
  );
}
