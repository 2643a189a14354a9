// Finds the words that belong to this machine: its own folders, and the hosts that its package clients are configured for.
import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, realpathSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";

/** Shorter ones, such as /root or /home, stand in many a text for themselves. */
const MIN_FOLDERS = 2;
/** Guides and images name these by custom, so they say nothing about one machine. */
const conventional = /^\/(opt|usr|srv|var)\/|^\/home\/user$/;

/** Names that no file of the tree may have, found when the tests run. */
export function machineWords(root: string): readonly string[] {
  return [...new Set([...folders(root), ...registryHosts(root)])].sort();
}

/** The checkout and the clone that it belongs to, and tools that lie in somebody's home. */
function folders(root: string): readonly string[] {
  const tools = [process.execPath, ...(process.env["PATH"] ?? "").split(":")].filter((path) => path.startsWith(`${homedir()}/`));
  const clone = said("git", ["-C", root, "rev-parse", "--git-common-dir"]).trim();
  const found = [root, realpathSync(root), ...(clone === "" ? [] : [dirname(resolve(root, clone))]), ...tools.map((path) => toolFolder(path)), homedir()];
  return found.filter((path) => path.split("/").filter(Boolean).length >= MIN_FOLDERS && path !== tmpdir() && !conventional.test(path));
}

/** ~/.tool, whatever lies below it. */
const toolFolder = (path: string): string => join(homedir(), path.slice(homedir().length + 1).split("/")[0] ?? "");

/** The hosts in the configuration of npm, pip, Go, apt, Maven and Cargo, and those they use without any. */
function registryHosts(root: string): readonly string[] {
  const { env } = process;
  const own = (...files: string[]) => files.map((file) => text(join(homedir(), file)));
  const pip = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)";
  const settings = [
    said("npm", ["config", "get", "registry"]),
    ...own(".npmrc", ".config/pip/pip.conf", ".pip/pip.conf", ".cargo/config.toml", ".cargo/config", ".config/go/env"),
    ...["/etc/npmrc", "/etc/pip.conf", "/etc/apt/sources.list", ...under("/etc/apt/sources.list.d")].map(text),
    ...VARIABLES.map((name) => env[name] ?? ""),
    said("python3", ["-c", pip]),
    said(env["SVC_GO"] ?? "go", ["env", "GOPROXY"]),
  ].map((each) => each.replace(/^\s*[#;].*$/gm, ""));
  const maven = [...own(".m2/settings.xml"), text("/etc/maven/settings.xml")].flatMap((each) => each.replace(/<!--.*?-->/gs, "").match(/<url>[^<]*/g) ?? []);
  // npm writes there where each package came from.
  const locked = text(join(root, "package-lock.json")).match(/"resolved": "[^"]*/g) ?? [];
  return [...settings, ...maven, ...locked].flatMap((each) =>
    [...each.matchAll(/https?:\/\/(?:[^\s/@"'<>]+@)?([\w.-]+\.[a-z]{2,})(?=[:/\s"'<>,|]|$)/gi)].map(([, host]) => host?.toLowerCase() ?? ""),
  );
}

const VARIABLES = [
  "npm_config_registry",
  "PIP_INDEX_URL",
  "PIP_EXTRA_INDEX_URL",
  "UV_INDEX_URL",
  "UV_DEFAULT_INDEX",
  "GOPROXY",
  "CARGO_REGISTRIES_CRATES_IO_INDEX",
];

function text(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return "";
  }
}

const under = (folder: string): readonly string[] => (existsSync(folder) ? readdirSync(folder).map((name) => join(folder, name)) : []);

/** Returns nothing if the program is not installed. */
function said(program: string, args: readonly string[]): string {
  try {
    return execFileSync(program, args, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"], timeout: 60_000 });
  } catch {
    return "";
  }
}
