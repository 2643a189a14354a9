// `svc bench [NAME…]`: runs all benches, or those named (NAME and each NAME-something), each a process; they print tables and write JSON.
import { spawn } from "node:child_process";
import { readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { type HelpPage, renderHelp, usageOfPage } from "@svc/contract/help.ts";

const directory = fileURLToPath(new URL(".", import.meta.url));
const SUFFIX = ".bench.ts";
const help: HelpPage = {
  usage: ["svc bench [options] [NAME...]"],
  about: "run the benchmarks, or those named: NAME and each NAME-something",
  options: [],
  examples: ["svc bench indexer", "svc bench"],
};

export async function main(argv: readonly string[]): Promise<number> {
  const all = readdirSync(directory)
    .filter((name) => name.endsWith(SUFFIX))
    .map((name) => name.slice(0, -SUFFIX.length))
    .sort();
  if (argv.includes("--help") || argv.includes("-h")) {
    process.stdout.write(renderHelp({ ...help, more: `Benchmarks: ${all.join(", ")}. Results go to bench/results/NAME.json.` }));
    return 0;
  }
  const named = (name: string) => all.filter((each) => each === name || each.startsWith(`${name}-`));
  const unknown = argv.filter((name) => named(name).length === 0);
  if (unknown.length > 0) {
    process.stderr.write(`svc bench: there is no bench ${unknown.join(", ")}; there are ${all.join(", ")}\n${usageOfPage(help, "svc bench --help")}`);
    return 2;
  }
  let worst = 0;
  for (const name of argv.length === 0 ? all : new Set(argv.flatMap(named))) {
    process.stdout.write(`\n# ${name}\n`);
    const { code, isStopped } = await run(`${directory}${name}${SUFFIX}`);
    worst = Math.max(worst, code);
    if (isStopped) break;
  }
  return worst;
}

function run(file: string): Promise<{ code: number; isStopped: boolean }> {
  const child = spawn(process.execPath, [file], { stdio: "inherit" });
  let isStopped = false;
  const passOn = (signal: NodeJS.Signals) => {
    isStopped = true;
    child.kill(signal);
  };
  process.on("SIGINT", passOn).on("SIGTERM", passOn);
  return new Promise((resolve) => {
    child.once("exit", (code) => {
      process.off("SIGINT", passOn).off("SIGTERM", passOn);
      resolve({ code: code ?? 1, isStopped });
    });
  });
}
