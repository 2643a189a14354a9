// Builds the npm packs that others install: JavaScript with types and explicit exports, from the sources of several packages.
import { execFile } from "node:child_process";
import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { stripTypeScriptTypes } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { promisify } from "node:util";
import { importsOf } from "../../test/imports.ts";
import { targetOf } from "../../test/rooms.ts";

const run = promisify(execFile);
const root = join(import.meta.dirname, "../..");

type Pack = {
  readonly name: string;
  readonly description: string;
  /** Public paths of the pack, and the source that each one names. */
  readonly exports: Readonly<Record<string, string>>;
  /** Native addons, by the path at which their sources load them. */
  readonly addons?: readonly string[];
};

export const packs: readonly Pack[] = [
  {
    name: "@svc/contract",
    description: "Clients of svc's sandbox platform and cache indexer",
    exports: {
      ".": "packages/contract/src/client.ts",
      "./envd": "packages/contract/src/envd.ts",
      "./failures": "packages/contract/src/failures.ts",
      "./indexer": "packages/contract/src/index-client.ts",
    },
  },
  {
    name: "@svc/store-client",
    description: "Client of svc's cache store",
    exports: { ".": "packages/store/src/client/store-client.ts", "./failures": "packages/contract/src/failures.ts" },
    addons: ["packages/store/native/build/svc_store.node", "packages/transfer/native/build/svc_transfer.node"],
  },
];

/** The sources of the tree that `entries` reach, and the modules from outside that these import. */
async function reach(entries: readonly string[]): Promise<{ sources: ReadonlySet<string>; modules: ReadonlySet<string> }> {
  const sources = new Set<string>();
  const modules = new Set<string>();
  const pending = [...entries];
  for (let file = pending.pop(); file !== undefined; file = pending.pop()) {
    if (sources.has(file)) continue;
    sources.add(file);
    for (const target of importsOf(await readFile(join(root, file), "utf8"))) {
      const source = targetOf(file, target);
      if (source !== undefined) pending.push(source);
      else if (!target.startsWith("node:")) modules.add(target.split("/", target.startsWith("@") ? 2 : 1).join("/"));
    }
  }
  return { sources, modules };
}

/** In the pack, sources of all packages lie below lib/ and import each other by relative paths of JavaScript. */
function withRelativeImports(text: string, file: string): string {
  return text.replace(/(\bfrom\s*|\bimport\s*\(?\s*)"((?:\.{1,2}|@svc)\/[^"]+\.ts)"/g, (whole, before: string, target: string) => {
    const source = targetOf(file, target);
    if (source === undefined) return whole;
    const path = relative(dirname(file), source).replace(/\.ts$/, ".js");
    return `${before}"${path.startsWith(".") ? path : `./${path}`}"`;
  });
}

const inPack = (file: string, ending: string) => `lib/${file.replace(/^packages\//, "").replace(/\.ts$/, ending)}`;

/** Writes the declarations of `sources` below `folder`. tsc emits nothing for files that it only reaches through node_modules, so all are named. */
async function declare(sources: Iterable<string>, folder: string): Promise<void> {
  const config = join(folder, "tsconfig.json");
  const compilerOptions = { noEmit: false, declaration: true, emitDeclarationOnly: true, outDir: join(folder, "types"), rootDir: join(root, "packages") };
  const typeRoots = [join(root, "node_modules/@types")];
  const files = [...sources].map((source) => join(root, source));
  await writeFile(config, JSON.stringify({ extends: join(root, "tsconfig.json"), compilerOptions: { ...compilerOptions, typeRoots }, files, include: [] }));
  await run(join(root, "node_modules/.bin/tsc"), ["-p", config], { cwd: root });
}

async function versions(): Promise<ReadonlyMap<string, string>> {
  const found = new Map<string, string>();
  for (const name of ["contract", "kit", "transfer", "store"]) {
    const { dependencies = {} } = JSON.parse(await readFile(join(root, "packages", name, "package.json"), "utf8")) as { dependencies?: Record<string, string> };
    for (const [module, version] of Object.entries(dependencies)) found.set(module, version);
  }
  return found;
}

/** Writes one pack into `folder` and returns the path of its archive. */
async function build(pack: Pack, folder: string): Promise<string> {
  const stage = await mkdtemp(join(tmpdir(), "svc-pack-"));
  try {
    const entries = Object.values(pack.exports);
    const { sources, modules } = await reach(entries);
    await declare(sources, stage);
    for (const file of sources) {
      const script = join(stage, "pack", inPack(file, ".js"));
      await mkdir(dirname(script), { recursive: true });
      await writeFile(script, withRelativeImports(stripTypeScriptTypes(await readFile(join(root, file), "utf8")), file));
      const types = await readFile(join(stage, "types", file.replace(/^packages\//, "").replace(/\.ts$/, ".d.ts")), "utf8");
      await writeFile(join(stage, "pack", inPack(file, ".d.ts")), withRelativeImports(types, file));
    }
    for (const addon of pack.addons ?? []) {
      const target = join(stage, "pack", inPack(addon, ""));
      await mkdir(dirname(target), { recursive: true });
      await cp(join(root, addon), target, { dereference: true });
    }
    const { version } = JSON.parse(await readFile(join(root, "package.json"), "utf8")) as { version: string };
    const known = await versions();
    const manifest = {
      name: pack.name,
      version,
      description: pack.description,
      license: "Apache-2.0",
      type: "module",
      engines: { node: ">=22.18.0" },
      ...(pack.addons === undefined ? {} : { os: [process.platform], cpu: [process.arch] }),
      exports: Object.fromEntries(
        Object.entries(pack.exports).map(([path, file]) => [path, { types: `./${inPack(file, ".d.ts")}`, default: `./${inPack(file, ".js")}` }]),
      ),
      files: ["lib"],
      dependencies: Object.fromEntries([...modules].sort().map((module) => [module, known.get(module) ?? "*"])),
    };
    await writeFile(join(stage, "pack/package.json"), `${JSON.stringify(manifest, undefined, 2)}\n`);
    await cp(join(root, "LICENSE"), join(stage, "pack/LICENSE"));
    await cp(join(import.meta.dirname, `${pack.name.split("/")[1]}.md`), join(stage, "pack/README.md"));
    await mkdir(folder, { recursive: true });
    const { stdout } = await run("npm", ["pack", "--json", "--pack-destination", folder], { cwd: join(stage, "pack") });
    const [{ filename }] = JSON.parse(stdout) as [{ filename: string }];
    return join(folder, filename.replace(/^@/, "").replace("/", "-"));
  } finally {
    await rm(stage, { recursive: true, force: true });
  }
}

/** Builds every pack into `folder`; the addons must have been built. Returns the archives' paths in the order of `packs`. */
export async function buildPacks(folder: string): Promise<readonly string[]> {
  const archives: string[] = [];
  for (const pack of packs) archives.push(await build(pack, folder));
  return archives;
}
