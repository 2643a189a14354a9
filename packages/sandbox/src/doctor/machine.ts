// Checks of this machine: programs, templates, free disk space and memory.
import { existsSync, readFileSync } from "node:fs";
import { statfs } from "node:fs/promises";
import { freemem, totalmem } from "node:os";
import { dirname } from "node:path";
import { asFailure } from "@svc/contract/failures.ts";
import type { Spawner } from "@svc/kit/spawn.ts";
import { lookForProgram } from "../runtime/programs.ts";
import { openSetupTemplates } from "../template/setup-templates.ts";
import { type Check, failed, passed } from "./check.ts";

export type MachineOptions = {
  readonly spawner: Spawner;
  readonly home: string;
  readonly runsc?: string | undefined;
  readonly envd?: string | undefined;
  readonly templates?: string | undefined;
};

const BYTES_PER_GB = 1e9;
const DISK_WANTED_GB = 5;
const MEMORY_WANTED_GB = 1;

/** Programs, the consequence if one is missing, and the Debian package that contains it. */
const programs = [
  { name: "runsc", follows: "the gvisor driver is missing: the one with the strongest isolation, and pause with memory", fix: "./svc up installs it" },
  { name: "runc", follows: "the runc driver is missing", fix: "apt-get install runc" },
  { name: "bwrap", follows: "the bubblewrap driver is missing; without root it is the only one", fix: "apt-get install bubblewrap" },
  { name: "mkfs.ext4", follows: "runc and bubblewrap as root cannot make disks", fix: "apt-get install e2fsprogs" },
  { name: "nsenter", follows: "bubblewrap as root cannot join a network", fix: "apt-get install util-linux" },
  { name: "newuidmap", follows: "without root every command in a sandbox runs as one user", fix: "apt-get install uidmap" },
] as const;

export async function machineChecks(options: MachineOptions): Promise<Check[]> {
  const found = await Promise.all(programs.map((program) => programCheck(program, options)));
  return [...found, envdCheck(options.envd), ...templateChecks(options.templates), await disk(options.home), memory()];
}

async function programCheck(program: (typeof programs)[number], { spawner, runsc }: MachineOptions): Promise<Check> {
  const path = await lookForProgram(program.name, program.name === "runsc" ? runsc : undefined);
  if (path === undefined) return failed(program.name, "not found", program.follows, program.fix);
  if (program.name !== "runsc" && program.name !== "runc" && program.name !== "bwrap") return passed(program.name, path);
  const result = await spawner.run([path, "--version"]).catch((error: Error) => ({ code: 1, stdout: "", stderr: error.message }));
  if (result.code !== 0) return failed(program.name, `${path} does not run: ${result.stderr.trim()}`, program.follows, program.fix);
  // runsc reports no version when it was built from a module; its folder is named by the version.
  return passed(program.name, program.name === "runsc" ? path : `${path}, ${result.stdout.trim().split("\n")[0]}`);
}

function envdCheck(path: string | undefined): Check {
  if (path !== undefined && existsSync(path)) return passed("envd", path);
  return failed("envd", path === undefined ? "SVC_ENVD names none" : `not at ${path}`, "no sandbox can run commands", "run it through ./svc, which builds it");
}

function templateChecks(folder: string | undefined): Check[] {
  const fix = "./svc up makes them";
  if (folder === undefined) return [failed("templates", "SVC_TEMPLATES_DIR names no directory", "there is nothing to start", fix)];
  try {
    const templates = openSetupTemplates(folder);
    const names = templates.list().map(({ name }) => name);
    if (names.length === 0) return [failed("templates", `none in ${folder}`, "there is nothing to start", fix)];
    const base = templates.find("base");
    const says = [...new Set(names)].join(", ");
    if (base.name === "base") return [passed("templates", says)];
    const follows = "apt cannot install into it, and it shows the host's /usr to guests";
    return [
      passed("templates", says),
      failed("base template", `an alias of ${base.name}: ${aliasReason(folder)}`, follows, "make a Debian mirror reachable, then ./svc up"),
    ];
  } catch (error) {
    return [failed("templates", asFailure(error).message, "create without a template's name fails", fix)];
  }
}

function aliasReason(folder: string): string {
  try {
    const aliases = JSON.parse(readFileSync(`${folder}/aliases.json`, "utf8")) as Record<string, string | { reason?: string }>;
    const base = aliases["base"];
    return (typeof base === "object" ? base.reason : undefined) ?? "no Debian mirror was reached at set-up";
  } catch {
    return "no Debian mirror was reached at set-up";
  }
}

async function disk(home: string): Promise<Check> {
  let path = home;
  while (!existsSync(path)) path = dirname(path);
  const { bavail, bsize } = await statfs(path);
  const freeGB = (bavail * bsize) / BYTES_PER_GB;
  const says = `${freeGB.toFixed(1)} GB free for ${home}`;
  if (freeGB >= DISK_WANTED_GB) return passed("disk space", says);
  return failed(
    "disk space",
    says,
    "sandboxes' writes fail when it is used up, whatever their own limit",
    `free some, or set SVC_HOME to a disk with ${DISK_WANTED_GB} GB`,
  );
}

function memory(): Check {
  const freeGB = freemem() / BYTES_PER_GB;
  const says = `${freeGB.toFixed(1)} of ${(totalmem() / BYTES_PER_GB).toFixed(1)} GB free`;
  if (freeGB >= MEMORY_WANTED_GB) return passed("memory", says);
  return failed("memory", says, "few sandboxes fit, and the kernel may end programs", `free memory until ${MEMORY_WANTED_GB} GB are there`);
}
