// An earlier commit of this repository as a runnable tree: its sources and its envd, with the packages that set-up installed.
import { execFile, spawnSync } from "node:child_process";
import { lstatSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

export type EarlierTree = AsyncDisposable & {
  readonly root: string;
  /** The environment that its nodes need. */
  readonly env: Readonly<Record<string, string>>;
};

const ROOT = fileURLToPath(new URL("../../..", import.meta.url));
/** Ten times what the build of envd takes on two idle cores. */
const BUILD_MS = 20 * 60_000;
const MAX_OUTPUT_BYTES = 2 ** 26;
const run = promisify(execFile);

/** Returns why the commit is unavailable here; undefined if it is available. */
export function missingCommit(commit: string): string | undefined {
  const asked = spawnSync("git", ["-C", ROOT, "cat-file", "-e", `${commit}^{commit}`], { encoding: "utf8" });
  if (asked.status === 0) return undefined;
  return `this tree's history does not have commit ${commit}: it is a shallow clone or no clone (${(asked.error?.message ?? asked.stderr).trim()})`;
}

/** Needs git, tar and SVC_GO. @throws if a package that it depends on is installed in another version. */
export async function earlierTree(commit: string): Promise<EarlierTree> {
  const root = mkdtempSync(join(tmpdir(), "svc-earlier-"));
  const remove = async () => rmSync(root, { recursive: true, force: true });
  try {
    const archive = join(root, "tree.tar");
    await run("git", ["-C", ROOT, "archive", "--format=tar", `--output=${archive}`, commit]);
    await run("tar", ["-xf", archive, "-C", root]);
    rmSync(archive);
    linkModules(root);
    const envd = join(root, "envd");
    const path = `${dirname(process.env["SVC_GO"] ?? "")}${delimiter}${process.env["PATH"]}`;
    await run(join(root, "packages/envd/build.sh"), [envd], { env: { ...process.env, PATH: path }, timeout: BUILD_MS, maxBuffer: MAX_OUTPUT_BYTES });
    return { root, env: { SVC_ENVD: envd }, [Symbol.asyncDispose]: remove };
  } catch (error) {
    await remove();
    throw error;
  }
}

/** Follows npm's layout: its own packages link to its own sources, all others to those of this tree. */
function linkModules(root: string): void {
  const installed = join(ROOT, "node_modules");
  checkVersions(root, installed);
  const modules = join(root, "node_modules");
  mkdirSync(join(modules, "@svc"), { recursive: true });
  for (const name of readdirSync(installed)) if (name !== "@svc" && !name.startsWith(".")) symlinkSync(join(installed, name), join(modules, name));
  for (const name of readdirSync(join(root, "packages"))) {
    const folder = join(root, "packages", name);
    const named = nameOf(folder);
    if (named?.startsWith("@svc/") === true) symlinkSync(folder, join(modules, named));
  }
}

function nameOf(folder: string): string | undefined {
  if (!lstatSync(folder).isDirectory() || !readdirSync(folder).includes("package.json")) return undefined;
  return (JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as { name?: string }).name;
}

type Lock = { readonly packages: Readonly<Record<string, { readonly version?: string; readonly dependencies?: Readonly<Record<string, string>> }>> };
const readLock = (path: string) => (JSON.parse(readFileSync(path, "utf8")) as Lock).packages;

function checkVersions(root: string, installed: string): void {
  const asked = readLock(join(root, "package-lock.json"));
  const there = readLock(join(installed, ".package-lock.json"));
  const wanted = Object.entries(asked).flatMap(([path, { dependencies = {} }]) => (path.startsWith("packages/") ? Object.keys(dependencies) : []));
  for (const name of new Set(wanted)) {
    const path = `node_modules/${name}`;
    if (name.startsWith("@svc/") || there[path] === undefined || asked[path]?.version === there[path].version) continue;
    throw new Error(`the earlier tree runs with ${name} ${asked[path]?.version}, and ${there[path].version} is installed`);
  }
}
