// `svc up --nodes N`: a small deployment on this machine: etcd, N nodes, and a gateway at the address of the single node.
import { randomBytes } from "node:crypto";
import { existsSync, linkSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import { localKey } from "../access/access.ts";
import { UsageError } from "../output/complain.ts";
import type { ChosenServer } from "./up-flags.ts";

const NODE = "node";
/** Flags that the gateway takes, although nodes have flags of the same names. */
const gatewayFlags = /^--?(listen|metrics-listen|tls|tls-cert|tls-key)(=|$)|^--(gateway|tls)\./;

/** Replaces the node by a cluster. The user's flags for the node go to each of the nodes, except for its addresses. */
export async function clusterOf(home: string, count: number, chosen: readonly ChosenServer[]): Promise<ChosenServer[]> {
  const node = chosen.find(({ name }) => name === NODE);
  if (node === undefined) throw new UsageError("--nodes needs the node, which --without or --only leaves out");
  if (existsSync(join(home, "sandboxes.db")))
    fail("SETTING_INVALID", `${home} is the home of a single node: give the cluster a home of its own with --home DIR, and use SVC_HOME=DIR with svc`);
  const env = secretsOf(home);
  const [client, peer] = await freePorts(2);
  const etcd = `http://127.0.0.1:${client}`;
  const { forGateway, forNodes } = divided(node.argv);
  const objects = join(home, "objects");
  mkdirSync(objects, { recursive: true, mode: 0o700 });
  const nodes = Array.from({ length: count }, (_, index): ChosenServer => {
    const own = join(home, "nodes", String(index + 1));
    mkdirSync(own, { recursive: true });
    const argv = ["--listen=127.0.0.1:0", `--etcd=${etcd}`, `--objects.url=file://${objects}`, "--tls.mode=off", ...forNodes];
    return { name: `${NODE} ${index + 1}`, command: [NODE], home: own, argv, env, portAdvice: "and start svc up again" };
  });
  const data = join(home, "etcd");
  // etcd refuses a folder that others may read.
  mkdirSync(data, { recursive: true, mode: 0o700 });
  const gatewayAdvice = "or move the gateway by --listen HOST:PORT (SVC_GATEWAY_LISTEN)";
  return [
    {
      name: "etcd",
      argv: [],
      portAdvice: "and start svc up again",
      env: process.arch === "arm64" ? { ETCD_UNSUPPORTED_ARCH: "arm64" } : {},
      program: { command: "etcd", args: etcdFlags(data, etcd, `http://127.0.0.1:${peer}`), url: etcd },
    },
    ...nodes,
    { name: "gateway", argv: [`--etcd=${etcd}`, ...forGateway], env, portAdvice: gatewayAdvice },
    ...chosen.filter((server) => server !== node),
  ];
}

function etcdFlags(data: string, url: string, peer: string): string[] {
  return [
    ["--name", "svc"],
    ["--data-dir", data],
    ["--listen-client-urls", url],
    ["--advertise-client-urls", url],
    ["--listen-peer-urls", peer],
    ["--initial-advertise-peer-urls", peer],
    ["--initial-cluster", `svc=${peer}`],
    // The ports differ at each start, so the existing member gets a new cluster.
    existsSync(join(data, "member")) ? ["--force-new-cluster"] : [],
  ].flat();
}

/** Divides the flags, each with its value, which is in the same word or in the next. */
function divided(argv: readonly string[]): { forGateway: string[]; forNodes: string[] } {
  const forGateway: string[] = [];
  const forNodes: string[] = [];
  for (let index = 0; index < argv.length; index++) {
    const word = argv[index] ?? "";
    const next = argv[index + 1];
    const parts = !word.includes("=") && next !== undefined && !next.startsWith("-") ? [word, next] : [word];
    index += parts.length - 1;
    (gatewayFlags.test(word) ? forGateway : forNodes).push(...parts);
    if (/^--?config(=|$)/.test(word)) forGateway.push(...parts);
  }
  return { forGateway, forNodes };
}

/** The secrets that all nodes and the gateway get as variables: the key, in the file where this machine's clients find it, and the seed. */
function secretsOf(home: string): Readonly<Record<string, string>> {
  const secrets = join(home, "secrets");
  mkdirSync(secrets, { recursive: true, mode: 0o700 });
  const key = localKey({ ...process.env }, home)?.apiKey ?? keptSecret(join(secrets, "api-key"), () => `sdk_${randomBytes(32).toString("hex")}`);
  const given = process.env["SVC_SANDBOX_ACCESS_TOKEN_HASH_SEED"];
  const seed = given !== undefined && given !== "" ? given : keptSecret(join(secrets, "sandbox-access-token-hash-seed"), () => randomBytes(32).toString("hex"));
  return { SVC_API_KEY: key, SVC_SANDBOX_ACCESS_TOKEN_HASH_SEED: seed };
}

/** Returns the stored secret, or creates it: atomically, and readable by its owner only. */
function keptSecret(path: string, make: () => string): string {
  if (!existsSync(path)) {
    const half = `${path}.${process.pid}.${randomBytes(4).toString("hex")}`;
    writeFileSync(half, `${make()}\n`, { mode: 0o600, flush: true, flag: "wx" });
    try {
      linkSync(half, path);
    } finally {
      rmSync(half);
    }
  }
  return readFileSync(path, "utf8").trim();
}

/** Returns ports that were free a moment ago. */
async function freePorts(count: number): Promise<number[]> {
  const servers = await Promise.all(
    Array.from({ length: count }, async () => {
      const server = createServer().listen(0, "127.0.0.1");
      await new Promise((resolve) => server.once("listening", resolve));
      return server;
    }),
  );
  const ports = servers.map((server) => (server.address() as { port: number }).port);
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
  return ports;
}
