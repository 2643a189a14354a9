// Examines this host as a node would: every check, and every driver tested with a sandbox that really starts.
import { mkdtemp, rm } from "node:fs/promises";
import { freemem, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { asFailure } from "@svc/contract/failures.ts";
import { type HelpPage, renderHelp, usageOfPage } from "@svc/contract/help.ts";
import { homeDirectory } from "@svc/contract/home.ts";
import { openLog } from "@svc/kit/log.ts";
import { openSpawner, type Spawner } from "@svc/kit/spawn.ts";
import { networkChecks } from "../network/checks.ts";
import { openRuntime } from "../runtime/open-runtime.ts";
import { type RuntimeName, runtimeNames } from "../runtime/runtime.ts";
import type { Check } from "./check.ts";
import { clockChecks } from "./clock.ts";
import { kernelChecks } from "./kernel.ts";
import { type MachineOptions, machineChecks } from "./machine.ts";
import { quarantineChecks } from "./quarantine.ts";
import { type Diagnosis, type Driver, renderDiagnosis } from "./report.ts";
import { tlsChecks } from "./tls.ts";

export type DoctorOptions = MachineOptions;

const help: HelpPage = {
  usage: ["svc doctor [options]", "svc doctor --deployment [options]"],
  about: "report what this host can and cannot do, and how to fix it",
  options: [
    ["--home DIR", "the home to look at (default: SVC_HOME, else by user)"],
    ["-o, --output FORMAT", "table or json (table)"],
  ],
  more: "With --deployment it asks all machines of a deployment instead (svc doctor --deployment --help). Else it starts a sandbox with each driver, and leaves nothing behind. Exit code 1 when no sandbox can run here.",
  examples: ["svc doctor", "svc doctor --output json"],
};

export async function doctorMain(argv: readonly string[]): Promise<number> {
  let values: { home?: string; output?: string; help?: boolean };
  try {
    const options = { home: { type: "string" }, output: { type: "string", short: "o" }, help: { type: "boolean", short: "h" } } as const;
    values = parseArgs({ args: [...argv], options }).values;
    if (!["table", "json", undefined].includes(values.output)) throw new Error(`--output: expected table or json, got '${values.output}'`);
  } catch (error) {
    process.stderr.write(`svc doctor: ${(error as Error).message}\n${usageOfPage(help, "svc doctor --help")}`);
    return 2;
  }
  if (values.help === true) {
    process.stdout.write(renderHelp(help));
    return 0;
  }
  await using spawner = openSpawner();
  const { SVC_RUNSC: runsc, SVC_ENVD: envd, SVC_TEMPLATES_DIR: templates } = process.env;
  const diagnosis = await runDoctor({ spawner, home: values.home ?? homeDirectory(), runsc, envd, templates });
  const json = values.output === "json";
  process.stdout.write(json ? `${JSON.stringify(diagnosis, null, 2)}\n` : renderDiagnosis(diagnosis, process.stdout.columns ?? 120));
  return diagnosis.canRun ? 0 : 1;
}

export async function runDoctor(options: DoctorOptions): Promise<Diagnosis> {
  const looks = [kernelChecks(options.spawner), networkLines(options.spawner), machineChecks(options), clockChecks(options.home), tlsChecks(options.home)];
  const checks = (await Promise.all(looks)).flat();
  const drivers: Driver[] = [];
  // Drivers are examined one after the other, since each is measured.
  for (const name of runtimeNames) drivers.push(await examine(name, options));
  return { checks: [...checks, ...quarantineChecks(options.home)], drivers, canRun: drivers.some(({ usable }) => usable.works) };
}

async function networkLines(spawner: Spawner): Promise<Check[]> {
  const lines = await networkChecks({ spawner });
  return lines.map((line) => ({ ...line, follows: line.works ? "" : (line.follows ?? "sandboxes have no network of their own, or none that leads out") }));
}

/** Uses a home of its own, so that a running node's sandboxes are not affected. */
async function examine(name: RuntimeName, { spawner, runsc, envd }: DoctorOptions): Promise<Driver> {
  const home = await mkdtemp(join(tmpdir(), "svc-doctor-"));
  try {
    const runtime = await openRuntime(name, { home, spawner, log: openLog("doctor", "silent"), programs: { runsc }, envd });
    try {
      const report = await runtime.probe();
      const density = report.idleMB > 0 ? Math.floor(freemem() / 2 ** 20 / report.idleMB) : 0;
      return { ...report, density };
    } finally {
      await runtime.close({ everything: true });
    }
  } catch (error) {
    return unusable(name, asFailure(error).message);
  } finally {
    await rm(home, { recursive: true, force: true });
  }
}

function unusable(runtime: RuntimeName, says: string): Driver {
  const nothing = { works: false, says: "" };
  const isolation = runtime === "gvisor" ? "kernel in user space" : process.getuid?.() === 0 ? "namespaces" : "unprivileged namespaces";
  const fix = "see the checks above";
  return {
    runtime,
    usable: { works: false, says, fix },
    isolation,
    pauseWithMemory: nothing,
    pauseWithFiles: nothing,
    limits: nothing,
    diskLimit: nothing,
    network: nothing,
    idleMB: 0,
    density: 0,
  };
}
