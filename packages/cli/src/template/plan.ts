// Interprets the command line of `svc template build`: the plan, the name, the registry's password.
import { existsSync, readFileSync, statSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { type BuildPlan, planFromDockerfile } from "@svc/contract/dockerfile.ts";
import { ForeseenError, UsageError } from "../output/complain.ts";

export type PlanFlags = {
  file?: string;
  name?: string;
  from?: string;
  image?: string;
  buildArg?: Record<string, string>;
  target?: string;
  startCmd?: string;
  readyCmd?: string;
};

export type Planned = Pick<BuildPlan, "steps" | "notes"> & {
  readonly base: { readonly fromTemplate: string } | { readonly fromImage: string };
  readonly startCmd: string | undefined;
  readonly readyCmd: string | undefined;
  /** true if its steps come from a Dockerfile, where they start as root. */
  readonly dockerfile: boolean;
};

/** `context` is undefined if none was given. @throws UsageError, or INVALID_REQUEST that names the Dockerfile's line. */
export function planOf(context: string | undefined, flags: PlanFlags): Planned {
  const { from, image, startCmd, readyCmd } = flags;
  const directory = resolve(context ?? ".");
  if (!existsSync(directory) || !statSync(directory).isDirectory()) throw new UsageError(`the context ${context ?? "."} is not a directory here`);
  const override = from !== undefined ? { fromTemplate: from } : image !== undefined ? { fromImage: image } : undefined;
  const file = flags.file ?? join(directory, "Dockerfile");
  // A Dockerfile in the current folder is ignored if --from or --image is given, unless the file or its folder is named as well.
  const isMeant = flags.file !== undefined || context !== undefined || override === undefined;
  if (override !== undefined && (!isMeant || (flags.file === undefined && !existsSync(file)))) {
    return { base: override, steps: [], notes: [], startCmd, readyCmd, dockerfile: false };
  }
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    const advice = flags.file === undefined ? "; name another with -f, or begin with --image or --from" : "";
    throw new ForeseenError(`the Dockerfile ${file} cannot be read: ${(error as Error).message}${advice}`);
  }
  const plan = planFromDockerfile(text, { buildArgs: flags.buildArg, target: flags.target });
  const { steps, notes, dockerfile } = plan;
  return {
    base: override ?? { fromImage: plan.fromImage },
    steps,
    notes,
    startCmd: startCmd ?? plan.startCmd,
    readyCmd: readyCmd ?? plan.readyCmd,
    dockerfile,
  };
}

/** Returns the given name, or one derived from the directory's name by the rules for templates. */
export function nameOf(asked: string | undefined, context: string | undefined): string {
  if (asked !== undefined) return asked;
  const name = basename(resolve(context ?? "."))
    .toLowerCase()
    .replace(/[^a-z0-9_.-]+/g, "-")
    .replace(/^[^a-z0-9]+|-+$/g, "");
  if (name === "") throw new UsageError("the directory's name cannot be a template's name: give one with -n NAME");
  return name;
}

/** Reads build secrets: id=NAME,src=FILE or id=NAME,env=VARIABLE; a value is never an argument, which other users could read. */
export function secretsOf(asked: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    asked.map((text) => {
      const parts = new Map(text.split(",").map((part) => [part.slice(0, part.indexOf("=")), part.slice(part.indexOf("=") + 1)]));
      const [id, file, variable] = [parts.get("id"), parts.get("src") ?? parts.get("source"), parts.get("env")];
      if (id === undefined || (file === undefined) === (variable === undefined))
        throw new UsageError(`--secret: expected id=NAME,src=FILE or id=NAME,env=VARIABLE, got ${JSON.stringify(text)}`);
      if (file !== undefined) return [id, readFileSync(file, "utf8")];
      const value = process.env[variable ?? ""];
      if (value === undefined) throw new UsageError(`--secret: the variable ${variable} is not set here`);
      return [id, value];
    }),
  );
}

/** The password is never an argument, since every user of this machine could read it there. */
export async function registryPassword(): Promise<string> {
  const fromEnv = process.env["SVC_REGISTRY_PASSWORD"];
  if (fromEnv !== undefined && fromEnv !== "") return fromEnv;
  if (process.stdin.isTTY) {
    const { isCancel, password } = await import("@clack/prompts");
    const entered = await password({ message: "Password of the registry", output: process.stderr });
    if (isCancel(entered)) throw new ForeseenError("no password, so nothing is built");
    return entered;
  }
  for await (const line of createInterface({ input: process.stdin })) {
    process.stdin.destroy();
    if (line !== "") return line;
    break;
  }
  throw new UsageError("--registry-user: expected the password in SVC_REGISTRY_PASSWORD, or as a line of stdin");
}
