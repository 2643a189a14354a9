// Converts a Dockerfile to the steps of a template build; an instruction that has no equivalent is refused with the reason.
// Longer than 300 lines: one case per instruction, read next to each other.

import { copies } from "./dockerfile-copy.ts";
import { type Instruction, instructionsOf, jsonForm, type Lookup, takeFlags, unquoted, wordsOf } from "./dockerfile-lines.ts";
import type { PlannedStep, Refuse, SecretMount } from "./dockerfile-step.ts";
import { literal, quoted } from "./dockerfile-words.ts";
import { fail } from "./failures.ts";

/** The body of POST /v2/templates/{id}/builds/{id}, except that COPY steps do not have their hashes yet. */
export type BuildPlan = {
  readonly fromImage: string;
  readonly steps: readonly PlannedStep[];
  readonly startCmd: string | undefined;
  /** The command of HEALTHCHECK, which says when the start command is ready. */
  readonly readyCmd: string | undefined;
  /** Steps start as root in / unless the image specifies otherwise. */
  readonly dockerfile: true;
  /** Sentences about instructions that have no meaning here and were left out. */
  readonly notes: readonly string[];
};

export type PlanOptions = {
  readonly buildArgs?: Readonly<Record<string, string>> | undefined;
  /** The stage to build: its name or number; by default the last one. */
  readonly target?: string | undefined;
};

const withoutMeaning: Readonly<Record<string, string>> = {
  EXPOSE: "every port of a sandbox can be reached",
  LABEL: "templates have names and tags",
  MAINTAINER: "templates have names and tags",
  VOLUME: "all of a sandbox's files are its own; mount a volume when it starts",
  STOPSIGNAL: "a sandbox ends at once",
};
const refusedInstructions: Readonly<Record<string, string>> = {
  ONBUILD: "write the instruction where it shall run",
};
/** Build tools define these arguments without an ARG instruction. */
const predefinedArgs = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "FTP_PROXY", "ftp_proxy", "NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy"];
/** Arguments about the platform, which have values where a Dockerfile declares them. */
const platformArgs: Readonly<Record<string, string>> = { TARGETOS: "linux", BUILDOS: "linux" };

type Words = { readonly shell: string } | { readonly exec: readonly string[] };

/** A stage as it is read; `args` and `env` are what its text can refer to. */
type Stage = {
  readonly name: string | undefined;
  /** `stage:NUMBER`, or an image. */
  readonly from: string;
  readonly steps: PlannedStep[];
  readonly args: Map<string, string>;
  readonly env: Map<string, string>;
  readonly uses: Set<number>;
  shell: readonly string[] | undefined;
  entrypoint?: Words | undefined;
  cmd?: Words | undefined;
  health?: Words | undefined;
};

/** @throws INVALID_REQUEST with the line's number. */
export function planFromDockerfile(text: string, { buildArgs = {}, target }: PlanOptions = {}): BuildPlan {
  const { escapeChar, instructions } = instructionsOf(text);
  const notes: string[] = [];
  const stages: Stage[] = [];
  /** ARGs before the first FROM are visible only to FROM; in a stage each must be declared again. */
  const early = new Map<string, string>();

  for (const instruction of instructions) {
    const { keyword, rest, line } = instruction;
    const refuse = (why: string): never => fail("INVALID_REQUEST", `Dockerfile line ${line}: ${keyword}: ${why}`);
    if (keyword === "FROM") {
      stages.push(newStage(rest, stages, (value) => unquoted(value, escapeChar, (name) => early.get(name) ?? ""), buildArgs, refuse));
      continue;
    }
    const stage = stages.at(-1);
    if (keyword === "ARG") {
      readArgs(rest, stage, { escapeChar, early, buildArgs }, refuse);
      continue;
    }
    if (stage === undefined) return refuse("FROM comes first");
    const { steps, args, env } = stage;
    const lookup: Lookup = (name) => env.get(name) ?? args.get(name);
    const full = (value: string) => unquoted(value, escapeChar, lookup);
    switch (keyword) {
      case "ENV": {
        const pairs = envPairs(rest, escapeChar, refuse).map(([name, value]) => [name, full(value)] as const);
        steps.push({ type: "ENV", args: pairs.flat() });
        // A value that refers to an unresolved variable of the image is unknown here.
        for (const [name, value] of pairs) {
          if (/(^|[^\\])\$/.test(value)) env.delete(name);
          else env.set(name, literal(value));
          args.delete(name);
        }
        break;
      }
      case "WORKDIR":
        steps.push({ type: "WORKDIR", args: [full(rest.trim()) || refuse("expected a path")] });
        break;
      case "USER":
        steps.push({ type: "USER", args: [full(rest.trim()) || refuse("expected a name or number")] });
        break;
      case "RUN":
        steps.push(runStep(instruction, stage, notes, refuse));
        break;
      case "COPY":
      case "ADD":
        steps.push(...copies(instruction, { escapeChar, full, notes, sourceOf: (from) => sourceOf(from, stages, stage) }, refuse));
        break;
      case "SHELL":
        stage.shell = jsonForm(rest) ?? refuse('expected the JSON form, such as ["/bin/bash", "-c"]');
        break;
      case "CMD":
        stage.cmd = wordsIn(rest, stage.shell);
        break;
      case "ENTRYPOINT":
        stage.entrypoint = wordsIn(rest, stage.shell);
        // A new ENTRYPOINT resets CMD, since an earlier CMD belongs to the previous entrypoint.
        stage.cmd = undefined;
        break;
      case "HEALTHCHECK":
        stage.health = healthIn(rest, stage.shell, refuse);
        break;
      default:
        if (withoutMeaning[keyword] !== undefined) notes.push(`line ${line}: ${keyword} is left out: ${withoutMeaning[keyword]}`);
        else refuse(refusedInstructions[keyword] ?? "there is no such instruction");
    }
  }
  return planOf(stages, target, notes);
}

function newStage(rest: string, stages: readonly Stage[], full: (value: string) => string, buildArgs: Readonly<Record<string, string>>, refuse: Refuse): Stage {
  const { flags, rest: words } = takeFlags(rest);
  if (flags.some(({ name }) => name !== "platform")) refuse(`--${flags[0]?.name} is not known`);
  const [image = "", as, name, ...more] = words.trim().split(/\s+/);
  if (more.length > 0 || (as !== undefined && (as.toUpperCase() !== "AS" || name === undefined))) refuse("expected FROM IMAGE [AS NAME]");
  const from = literal(full(image));
  if (from === "" || from === "scratch") refuse(from === "" ? "the image's name is empty" : "a template needs a root with a shell; begin with an image");
  const earlier = stages.findLastIndex((each) => each.name === from.toLowerCase());
  const source = stages[earlier];
  const args = new Map<string, string>();
  for (const each of predefinedArgs) if (buildArgs[each] !== undefined) args.set(each, buildArgs[each]);
  // A stage inherits the variables, the shell and the commands of the stage that it begins with, but not its ARGs.
  return {
    name: name?.toLowerCase(),
    from: source === undefined ? from : `stage:${earlier}`,
    steps: [],
    args,
    env: new Map(source?.env ?? []),
    uses: new Set(source === undefined ? [] : [earlier]),
    shell: source?.shell,
    entrypoint: source?.entrypoint,
    cmd: source?.cmd,
    health: source?.health,
  };
}

/** Resolves COPY --from: an earlier stage by name or number, or an image. */
function sourceOf(from: string, stages: readonly Stage[], stage: Stage): string {
  const below = stages.slice(0, -1);
  const named = below.findLastIndex((each) => each.name === from.toLowerCase());
  const at = named === -1 && /^\d+$/.test(from) && Number(from) < below.length ? Number(from) : named;
  if (at === -1) return from;
  stage.uses.add(at);
  return `stage:${at}`;
}

type ArgScope = { readonly escapeChar: string; readonly early: Map<string, string>; readonly buildArgs: Readonly<Record<string, string>> };

function readArgs(rest: string, stage: Stage | undefined, { escapeChar, early, buildArgs }: ArgScope, refuse: Refuse): void {
  for (const word of wordsOf(rest, escapeChar)) {
    const [name = "", value] = split(word);
    if (!/^[A-Za-z_]\w*$/.test(name)) refuse(`'${name}' is not a valid name`);
    const lookup: Lookup = stage === undefined ? (each) => early.get(each) : (each) => stage.env.get(each) ?? stage.args.get(each);
    const own = value === undefined ? undefined : literal(unquoted(value, escapeChar, lookup));
    const given = buildArgs[name] ?? own ?? (stage === undefined ? undefined : (early.get(name) ?? platformArgs[name]));
    if (given !== undefined) (stage?.args ?? early).set(name, given);
  }
}

/** Puts the stages that the wanted one needs one after the other; each but the first begins with a FROM step. */
function planOf(stages: readonly Stage[], target: string | undefined, notes: readonly string[]): BuildPlan {
  const wanted = target === undefined ? stages.length - 1 : stageNamed(stages, target);
  const last = stages[wanted] ?? fail("INVALID_REQUEST", "the Dockerfile has no FROM");
  const needed = new Set<number>();
  const visit = (at: number) => {
    if (needed.has(at)) return;
    for (const each of stages[at]?.uses ?? []) visit(each);
    needed.add(at);
  };
  visit(wanted);
  // Stages are numbered again, without those that nothing needs.
  const order = [...needed].sort((a, b) => a - b);
  const renumbered = (from: string) => {
    const at = /^stage:(\d+)$/.exec(from)?.[1];
    return at === undefined ? from : `stage:${order.indexOf(Number(at))}`;
  };
  const steps = order.flatMap((at, position) => {
    const stage = stages[at] as Stage;
    const own = stage.steps.map((step) => (step.from === undefined ? step : { ...step, from: renumbered(step.from) }));
    return position === 0 ? own : [{ type: "FROM" as const, args: [renumbered(stage.from)] }, ...own];
  });
  const startCmd = startCommand(last);
  const ready = last.health === undefined ? undefined : textOf(last.health);
  const unused = ready !== undefined && startCmd === undefined;
  const said = unused ? [...notes, "HEALTHCHECK is left out: there is no command that it could wait for"] : notes;
  return {
    fromImage: (stages[order[0] ?? 0] as Stage).from,
    steps,
    notes: said,
    dockerfile: true,
    startCmd,
    readyCmd: startCmd === undefined ? undefined : ready,
  };
}

function stageNamed(stages: readonly Stage[], target: string): number {
  const named = stages.findLastIndex(({ name }) => name === target.toLowerCase());
  const at = named === -1 && /^\d+$/.test(target) ? Number(target) : named;
  if (stages[at] !== undefined) return at;
  const names = stages.map(({ name }, number) => name ?? String(number)).join(", ");
  return fail("INVALID_REQUEST", `the Dockerfile has no stage '${target}'; its stages are ${names}`);
}

/** A command in shell form is run by the shell of SHELL, if there is one. */
function wordsIn(rest: string, shell: readonly string[] | undefined): Words {
  const exec = jsonForm(rest);
  if (exec !== undefined) return { exec };
  return shell === undefined ? { shell: rest.trim() } : { shell: [...shell, rest.trim()].map(quoted).join(" ") };
}

function textOf(words: Words): string {
  return "shell" in words ? words.shell : words.exec.map(quoted).join(" ");
}

/** HEALTHCHECK NONE removes an inherited one; its times have no meaning here. */
function healthIn(rest: string, shell: readonly string[] | undefined, refuse: Refuse): Words | undefined {
  const { rest: words } = takeFlags(rest);
  if (/^none$/i.test(words.trim())) return undefined;
  const command = /^cmd\s+([\s\S]+)$/i.exec(words.trim())?.[1] ?? refuse("expected CMD with a command, or NONE");
  return wordsIn(command, shell);
}

/** An ENTRYPOINT in shell form takes no arguments. */
function startCommand({ entrypoint, cmd }: Pick<Stage, "entrypoint" | "cmd">): string | undefined {
  const text = (words: Words | undefined) => (words === undefined ? "" : textOf(words));
  const tail = cmd !== undefined && "shell" in cmd && entrypoint !== undefined ? `/bin/sh -c ${quoted(cmd.shell)}` : text(cmd);
  const both =
    entrypoint === undefined ? text(cmd) : "shell" in entrypoint ? entrypoint.shell : [text(entrypoint), tail].filter((part) => part !== "").join(" ");
  return both === "" ? undefined : both;
}

/** ARGs become variables of the command, but not of the template. */
function runStep({ rest, documents }: Instruction, { args, shell }: Stage, notes: string[], refuse: Refuse): PlannedStep {
  const { flags, rest: words } = takeFlags(rest);
  const secrets: SecretMount[] = [];
  for (const { name, value } of flags) {
    if (name === "mount" && /(^|,)type=secret(,|$)/.test(value)) secrets.push(secretMount(value, refuse));
    else if (name === "mount" && /(^|,)type=(cache|tmpfs)(,|$)/.test(value)) notes.push(`RUN --mount=${value} is left out: steps have a cache of their own`);
    else refuse(`--${name}=${value} is not offered`);
  }
  const exec = jsonForm(words)?.map(quoted).join(" ");
  const command = exec ?? withDocuments(words, documents);
  if (command.trim() === "") refuse("the command is empty");
  const inShell = exec === undefined && shell !== undefined ? [...shell, command].map(quoted).join(" ") : command;
  const variables = [...args].map(([name, value]) => `${name}=${quoted(value)}`);
  const text = variables.length === 0 ? inShell : `export ${variables.join(" ")}; ${inShell}`;
  return { type: "RUN", args: [text], ...(secrets.length === 0 ? {} : { secrets }) };
}

/** A here-document alone is a script; with a command before it, the shell passes it to the command. */
function withDocuments(words: string, documents: Instruction["documents"]): string {
  const [only] = documents;
  if (only === undefined) return words;
  if (!/^<<-?["']?[A-Za-z_][\w.-]*["']?$/.test(words.trim())) {
    // The lines are stripped of tabs already, so `<<-` and `<<` mean the same.
    return `${words}\n${documents.map(({ name, content }) => `${content}${name}\n`).join("")}`;
  }
  if (!only.content.startsWith("#!")) return only.content;
  return `f=$(mktemp) && printf %s ${quoted(only.content)} > "$f" && chmod 0700 "$f" && "$f"; code=$?; rm -f "$f"; exit $code`;
}

function secretMount(value: string, refuse: Refuse): SecretMount {
  const parts = new Map(value.split(",").map((part) => split(part)));
  const target = parts.get("target") ?? parts.get("dst") ?? parts.get("destination");
  const env = parts.get("env");
  const id = parts.get("id") ?? target?.split("/").at(-1) ?? "";
  if (!/^[\w.-]{1,128}$/.test(id)) refuse(`--mount=${value}: expected id=NAME`);
  const required = parts.has("required") && parts.get("required") !== "false";
  return { id, ...(target === undefined ? {} : { target }), ...(env === undefined ? {} : { env }), ...(required ? { required } : {}) };
}

/** Parses ENV a=b c="d e", or the older form, where the value is the rest of the line. */
function envPairs(rest: string, escapeChar: string, refuse: Refuse): [string, string][] {
  const words = wordsOf(rest, escapeChar);
  const first = words[0] ?? refuse("expected NAME=VALUE");
  if (!first.includes("=")) {
    const value = rest.trim().slice(first.length).trim();
    return value === "" ? refuse("expected NAME=VALUE") : [checkedName(first, value, refuse)];
  }
  return words.map((word) => {
    const [name = "", value] = split(word);
    return value === undefined ? refuse(`'${word}' has no '='`) : checkedName(name, value, refuse);
  });
}

function checkedName(name: string, value: string, refuse: Refuse): [string, string] {
  return /^[A-Za-z_]\w*$/.test(name) ? [name, value] : refuse(`'${name}' is not the name of a variable`);
}

function split(word: string): [string, string | undefined] {
  const at = word.indexOf("=");
  return at === -1 ? [word, undefined] : [word.slice(0, at), word.slice(at + 1)];
}
