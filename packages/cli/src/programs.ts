// Servers and programs that `svc` starts by name: they are other packages, reached by file and never imported.
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

export type Program = {
  /** Its words on the command line. */
  readonly name: string;
  /** Below the root of the tree; exports `main(argv): Promise<number>`, the exit code. */
  readonly file: string;
  readonly summary: string;
  /** `svc up` runs it. */
  readonly inUp?: boolean;
};

export const programs: readonly Program[] = [
  { name: "node", file: "packages/sandbox/src/node/main.ts", summary: "run a runtime node in the foreground", inUp: true },
  { name: "doctor", file: "packages/sandbox/src/doctor/main.ts", summary: "tell what this host can and cannot do, and how to mend it" },
  { name: "metadata", file: "packages/store/src/metadata/main.ts", summary: "run the metadata server of transfer engines in the foreground", inUp: true },
  { name: "store master", file: "packages/store/src/master/main.ts", summary: "run the cache store's master in the foreground" },
  { name: "transfer", file: "packages/transfer/src/cli/main.ts", summary: "copy to and from a segment, measure it, tell its path" },
  { name: "segment", file: "packages/transfer/src/cli/main.ts", summary: "create, mount, show and list segment records" },
  { name: "indexer", file: "packages/indexer/src/main.ts", summary: "run the cache indexer in the foreground", inUp: true },
  { name: "index", file: "packages/indexer/src/cli/main.ts", summary: "ask a cache indexer, register publishers, simulate an engine" },
  { name: "bench", file: "bench/main.ts", summary: "run the benches, or the one named" },
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
export function programFile(program: Program): string | undefined {
  const url = new URL(`../../../${program.file}`, import.meta.url);
  return existsSync(fileURLToPath(url)) ? url.href : undefined;
}

export function programsHere(): Program[] {
  return programs.filter((program) => programFile(program) !== undefined);
}
