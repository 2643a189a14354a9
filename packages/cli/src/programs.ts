// Servers and programs that `svc` starts by name: they are other packages, reached by file and never imported.
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

export type Program = {
  /** Its words on the command line. */
  readonly name: string;
  /** Below the root of the tree; exports `main(argv): Promise<number>`, the exit code. */
  readonly file: string;
  readonly summary: string;
  /** Of a server: a file below the root that exports `load(argv)`, which reads its settings and refuses what is wrong with them. */
  readonly settings?: string;
  /** Its verbs, for the completion of a shell. */
  readonly verbs?: readonly string[];
  /** `svc up` runs it, with these. */
  readonly inUp?: InUp;
};

export type InUp = {
  /** Sections of the settings that it reads, for flags --section.key; those that nobody names are the node's. */
  readonly sections?: readonly string[];
  /** How its ports are moved. */
  readonly ports: string;
  /** The flag that names a settings file; --config where it is left out. */
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
  { name: "mcp", file: "packages/mcp/src/main.ts", summary: "give an agent sandboxes over the Model Context Protocol (MCP)" },
  { name: "bench", file: "bench/main.ts", summary: "run the benchmarks, or the one named" },
];

/** The program that the first words name, and the words left for it. */
export function findProgram(argv: readonly string[]): { program: Program; rest: string[] } | undefined {
  for (const program of programs) {
    const words = program.name.split(" ");
    if (words.every((word, index) => argv[index] === word)) return { program, rest: argv.slice(words.length) };
  }
  return undefined;
}

/** The program's address for `import`; undefined where the tree lacks it. */
export const programFile = ({ file }: Program): string | undefined => addressOf(file);

/** Fails as the server that these words start would, where it refuses a flag, a variable or a file of settings. */
export async function checkSettings(words: string, argv: readonly string[]): Promise<void> {
  const { settings } = programs.find(({ name }) => name === words) ?? {};
  const address = settings === undefined ? undefined : addressOf(settings);
  if (address !== undefined) ((await import(address)) as { load: (argv: readonly string[]) => unknown }).load(argv);
}

function addressOf(file: string): string | undefined {
  const url = new URL(`../../../${file}`, import.meta.url);
  return existsSync(fileURLToPath(url)) ? url.href : undefined;
}

/** Its name as one word: in `--without`, and as the name of its log. */
export function slugOf(name: string): string {
  return name.replaceAll(" ", "-");
}

/** By `--without`; the parts of a deployment, such as etcd and its single nodes, cannot. */
export function canBeLeftOut(name: string): boolean {
  return programs.some((program) => program.name === name && program.inUp !== undefined);
}

export function programsHere(): Program[] {
  return programs.filter((program) => programFile(program) !== undefined);
}
