// Agents' frameworks that drive E2B sandboxes: what is installed of each, and the program that uses its own classes without a model.
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { copyFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { openLoneNetwork } from "./lone-network.ts";
import type { TestNode } from "./node.ts";

export type Framework = {
  readonly title: string;
  readonly drive: string;
  readonly packages: readonly string[];
  readonly language: "python" | "javascript";
};

const python = (title: string, drive: string, ...packages: string[]): Framework => ({ title, drive, packages, language: "python" });
const javascript = (title: string, drive: string, ...packages: string[]): Framework => ({ title, drive, packages, language: "javascript" });

export const frameworks: readonly Framework[] = [
  python("Agno", "agno", "agno==3.1.10", "e2b-code-interpreter==2.11.5"),
  javascript("ComputeSDK", "computesdk", "@computesdk/e2b@1.7.52", "computesdk@4.1.4"),
  python("CrewAI", "crewai", "crewai-tools==1.15.30", "e2b-code-interpreter==2.11.5"),
  python("Google ADK", "adk", "e2b-adk==0.1.2"),
  python("Harbor", "harbor", "harbor[e2b]==0.26.0"),
  python("Haystack", "haystack", "e2b-haystack==2.0.0"),
  python("Inspect", "inspect", "inspect-sandboxes==0.6.1", "e2b==2.63.0"),
  python("LangChain Deep Agents", "langchain", "langchain-e2b==0.0.6"),
  javascript("Mastra", "mastra", "@mastra/e2b@0.8.0", "@mastra/core@1.71.0"),
  python("OpenAI Agents SDK", "openai-agents", "openai-agents[e2b]==0.24.0"),
  python("smolagents", "smolagents", "smolagents==1.26.0", "e2b-code-interpreter==2.11.5"),
];

const INSTALL_MS = 900_000;
const DRIVE_MS = 300_000;

/** Harbor and Inspect need a newer Python than many hosts' own. */
const NEWER = ["3.13", "3.12"];

/** Returns a Python program that really runs: pyenv puts programs on the PATH that only print which versions are installed. */
function findPython(): string {
  const runs = (program: string) => spawnSync(program, ["-c", ""], { stdio: "ignore" }).status === 0;
  for (const version of NEWER) {
    if (runs(`python${version}`)) return `python${version}`;
    const prefix = spawnSync("pyenv", ["prefix", version], { encoding: "utf8" });
    const own = prefix.status === 0 ? join(prefix.stdout.trim(), "bin/python3") : undefined;
    if (own !== undefined && runs(own)) return own;
  }
  return "python3";
}

/** Returns the folder of the installed packages, from the cache or from the package index. */
async function install({ drive, packages, language }: Framework, interpreter: string): Promise<string> {
  const all = join(process.env["SVC_CACHE"] ?? tmpdir(), "frameworks");
  const folder = join(all, `${drive}-${packages.join("-").replace(/[^a-z0-9.]+/gi, "-")}`);
  if (existsSync(folder)) return folder;
  mkdirSync(all, { recursive: true });
  const making = mkdtempSync(join(all, `.${drive}-`));
  try {
    if (language === "python") {
      const quiet = ["--quiet", "--disable-pip-version-check", "--no-compile", "--target", making];
      await run(interpreter, ["-m", "pip", "install", ...quiet, ...packages], { PIP_USER: "0", PYTHONPATH: "" }, INSTALL_MS, making);
    } else {
      writeFileSync(join(making, "package.json"), '{ "private": true }\n');
      await run("npm", ["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", ...packages], {}, INSTALL_MS, making);
    }
    if (!existsSync(folder)) renameSync(making, folder);
  } finally {
    rmSync(making, { recursive: true, force: true });
  }
  return folder;
}

/** Runs in a network where nothing but the node exists. Returns what the framework used, and the release that it was. @throws with its output if it fails. */
export async function driveFramework(framework: Framework, node: Pick<TestNode, "url">, apiKey: string): Promise<{ used: string; release: string }> {
  const interpreter = findPython();
  const folder = await install(framework, interpreter);
  const isPython = framework.language === "python";
  const program = fileURLToPath(new URL(`../test/frameworks/drive-${framework.drive}.${isPython ? "py" : "mjs"}`, import.meta.url));
  const reach = { E2B_API_URL: node.url, E2B_SANDBOX_URL: node.url, E2B_API_KEY: apiKey };
  using network = openLoneNetwork(Number(new URL(node.url).port));
  const drive = (command: string, args: readonly string[], more: Readonly<Record<string, string>>, cwd: string) =>
    run(...network.inside(command, args), { ...reach, ...more }, DRIVE_MS, cwd);
  const said = isPython
    ? await drive(interpreter, [program], { PYTHONPATH: folder, PYTHONDONTWRITEBYTECODE: "1" }, tmpdir())
    : await drive(process.execPath, ["--input-type=module", "--eval", `await import(${JSON.stringify(await beside(folder, program))})`], {}, folder);
  const used = /^used: (.+)$/m.exec(said)?.[1];
  if (used === undefined) throw new Error(said);
  return { used, release: releaseOf(folder, framework) };
}

/** Node resolves packages from the program's own folder. */
async function beside(folder: string, program: string): Promise<string> {
  const copy = join(folder, "drive.mjs");
  await copyFile(program, copy);
  return copy;
}

function releaseOf(folder: string, { packages, language }: Framework): string {
  const [first = ""] = packages;
  const [, name = "", pinned] = /^(@?[\w/-]+?)(?:\[\w+\])?(?:[=@]+([\d.]+))?$/.exec(first) ?? [];
  if (pinned !== undefined) return `${name} ${pinned}`;
  const info = language === "python" ? readdirSync(folder).find((each) => each.startsWith(`${name.replaceAll("-", "_")}-`)) : undefined;
  return `${name} ${/-([\d.]+)\.dist-info$/.exec(info ?? "")?.[1] ?? ""}`.trim();
}

async function run(command: string, args: readonly string[], more: Readonly<Record<string, string>>, boundMs: number, cwd: string): Promise<string> {
  const inherited = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(E2B|SVC|SDK)_/.test(name) && name !== "PYTHONPATH"));
  const child = spawn(command, args, { cwd, env: { ...inherited, ...more }, stdio: ["ignore", "pipe", "pipe"], timeout: boundMs });
  let said = "";
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (chunk: string) => (said += chunk));
  const code = await new Promise((resolve) => {
    child.once("error", resolve);
    child.once("close", resolve);
  });
  if (code !== 0) throw new Error(`${command} ${args.join(" ").slice(0, 200)} ended with ${code}:\n${said.slice(-4_000)}`);
  return said;
}
