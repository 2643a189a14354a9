// Servers and programs that `svc` starts by name; most are in other packages. All are loaded by file path and never imported.
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

export type Program = {
  /** The words that select it on the command line. */
  readonly name: string;
  /** The path below the root of the tree; the file exports `main(argv): Promise<number>`, which returns the exit code. */
  readonly file: string;
  readonly summary: string;
  /** For a server: a file below the root that exports `load(argv)`, which reads its settings and throws if they are not valid. */
  readonly settings?: string;
  /** Its verbs, for shell completion. */
  readonly verbs?: readonly string[];
  /** Set if `svc up` runs it, with these properties. */
  readonly inUp?: InUp;
};

export type InUp = {
  /** The settings sections that it reads, for flags --section.key; sections that no server lists belong to the node. */
  readonly sections?: readonly string[];
  /** A sentence that says how to change its ports. */
  readonly ports: string;
  /** The flag that names a settings file; default: --config. */
  readonly settingsFlag?: string;
};

export const programs: readonly Program[] = [
  {
    name: "node",
    file: "packages/sandbox/src/node/main.ts",
    summary: "run a runtime node in the foreground",
    settings: "packages/sandbox/src/node/settings.ts",
    inUp: { ports: "--listen HOST:PORT (SVC_NODE_LISTEN)" },
  },
  {
    name: "gateway",
    file: "packages/gateway/src/main.ts",
    summary: "run a gateway in front of several nodes in the foreground",
    settings: "packages/gateway/src/settings.ts",
  },
  {
    name: "certs",
    file: "packages/kit/src/peers/certs.ts",
    summary: "make, renew and show the certificates by which the servers of a deployment know each other",
    verbs: ["init", "issue", "rotate", "show"],
  },
  {
    name: "doctor --deployment",
    file: "packages/cli/src/deployment/main.ts",
    summary: "ask all machines of a deployment, and list what is wrong, each with the command that fixes it",
  },
  { name: "doctor", file: "packages/sandbox/src/doctor/main.ts", summary: "report what this host can and cannot do, and how to fix it" },
  {
    name: "metadata",
    file: "packages/store/src/metadata/main.ts",
    summary: "run the metadata server of transfer engines in the foreground",
    settings: "packages/store/src/metadata/settings.ts",
    inUp: { sections: ["metadata"], ports: "--metadata.listen HOST:PORT (SVC_METADATA_LISTEN)" },
  },
  {
    name: "store master",
    file: "packages/store/src/master/main.ts",
    summary: "run the cache store's master in the foreground",
    settings: "packages/store/src/master/settings.ts",
    inUp: { sections: ["store"], ports: "--store.listen HOST:PORT and --store.rpc_port N (SVC_STORE_LISTEN, SVC_STORE_RPC_PORT)" },
  },
  {
    name: "store service",
    file: "packages/store/src/service/main.ts",
    summary: "run the cache store's REST service in the foreground: this machine's memory, and HTTP",
    settings: "packages/store/src/service/settings.ts",
    inUp: { sections: ["store_service"], ports: "--store_service.port N (SVC_STORE_SERVICE_PORT)", settingsFlag: "--settings" },
  },
  {
    name: "store admin",
    file: "packages/store-admin/src/main.ts",
    summary: "run the cache store's admin server in the foreground: route migrations",
    settings: "packages/store-admin/src/settings.ts",
    inUp: { sections: ["store_admin"], ports: "--store_admin.listen HOST:PORT (SVC_STORE_ADMIN_LISTEN)" },
  },
  {
    name: "store",
    file: "packages/store/src/cli/main.ts",
    summary: "put, get and list keys of a cache store, inspect and watch it",
    verbs: [
      ...["put", "get", "ls", "stat", "replicas", "rm", "copy", "move", "drain", "undrain", "migrations", "devices"],
      ...["leader", "standbys", "lead", "segments", "clients", "summary", "top"],
    ],
  },
  {
    name: "transfer",
    file: "packages/transfer/src/cli/main.ts",
    summary: "copy to and from a segment, measure it, show the path to it",
    verbs: ["write", "read", "bench", "doctor", "serve"],
  },
  {
    name: "segment",
    file: "packages/transfer/src/cli/segment-main.ts",
    summary: "create, mount, show and list segment records",
    verbs: ["register", "mount", "show", "list"],
  },
  {
    name: "indexer",
    file: "packages/indexer/src/main.ts",
    summary: "run the cache indexer in the foreground",
    settings: "packages/indexer/src/settings.ts",
    inUp: { sections: ["indexer"], ports: "--indexer.listen HOST:PORT (SVC_INDEXER_LISTEN)" },
  },
  {
    name: "index",
    file: "packages/indexer/src/cli/main.ts",
    summary: "query a cache indexer, register publishers, simulate an engine",
    verbs: ["query", "register", "unregister", "services", "simulate"],
  },
  {
    name: "router",
    file: "packages/router/src/main.ts",
    summary: "run a router in front of inference engines in the foreground",
    settings: "packages/router/src/settings.ts",
  },
  {
    name: "backup",
    file: "packages/sandbox/src/backup/main.ts",
    summary: "back up a node, verify a backup, restore one into an empty home",
    verbs: ["create", "verify", "restore"],
  },
  { name: "mcp", file: "packages/mcp/src/main.ts", summary: "give an agent sandboxes over the Model Context Protocol (MCP)" },
  { name: "bench", file: "bench/main.ts", summary: "run the benchmarks, or the one named" },
];

/** Returns the program that the first words select, and its arguments. */
export function findProgram(argv: readonly string[]): { program: Program; rest: string[] } | undefined {
  for (const program of programs) {
    const words = program.name.split(" ");
    if (words.every((word, index) => argv[index] === word)) return { program, rest: argv.slice(words.length) };
  }
  return undefined;
}

/** The program's URL for `import`; undefined if it is not part of this tree. */
export const programFile = ({ file }: Program): string | undefined => addressOf(file);

/** Fails as the server itself would if it rejected a flag, a variable or a settings file. */
export async function checkSettings(command: string, argv: readonly string[]): Promise<void> {
  const { settings } = programs.find(({ name }) => name === command) ?? {};
  const address = settings === undefined ? undefined : addressOf(settings);
  if (address !== undefined) ((await import(address)) as { load: (argv: readonly string[]) => unknown }).load(argv);
}

function addressOf(file: string): string | undefined {
  const url = new URL(`../../../../${file}`, import.meta.url);
  return existsSync(fileURLToPath(url)) ? url.href : undefined;
}

/** The name as one word, for `--without` and for the name of its log. */
export function slugOf(name: string): string {
  return name.replaceAll(" ", "-");
}

/** Returns true if `--without` accepts it; the parts of a deployment, such as etcd and its individual nodes, cannot be left out. */
export function canBeLeftOut(name: string): boolean {
  return programs.some((program) => program.name === name && program.inUp !== undefined);
}

export function programsHere(): Program[] {
  return programs.filter((program) => programFile(program) !== undefined);
}
