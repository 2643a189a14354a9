// The meaning of build steps: settings are folded into the environment of later steps, the others become actions that change files.
import { createHash } from "node:crypto";
import { posix } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import type { BuildStep } from "@svc/contract/template-build.ts";
import type { Chain, Surroundings } from "./build-record.ts";

/** A change of files. `folders` are WORKDIRs set since the last action; they are created before it, owned by the user at that time. */
export type Action = { readonly folders: readonly Folder[] } & (
  | {
      readonly kind: "run";
      readonly command: string;
      readonly user: string;
      readonly workdir: string;
      readonly env: Readonly<Record<string, string>>;
      readonly secrets?: BuildStep["secrets"];
    }
  | { readonly kind: "copy"; readonly source: string; readonly target: string; readonly owner: string; readonly mode: string; readonly filesHash: string }
  /** `chain` has the files; `owner` is empty if they keep theirs. */
  | { readonly kind: "copy-from"; readonly chain: Chain; readonly source: string; readonly target: string; readonly owner: string; readonly mode: string }
  | { readonly kind: "folders" }
);
export type Folder = { readonly path: string; readonly owner: string };

export type Folded = { readonly surroundings: Surroundings; readonly folders: readonly Folder[]; readonly action: Action | undefined };

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const envName = /^[A-Za-z_][A-Za-z0-9_]*$/;

/** Folds one step. `folders` are those still to be created. @throws INVALID_REQUEST that says what the step lacks. */
export function foldStep(step: BuildStep, { env, user, workdir }: Surroundings, folders: readonly Folder[], from?: Chain): Folded {
  const [first = "", second = "", third = "", fourth = ""] = step.args;
  const stays = { env, user, workdir };
  switch (step.type) {
    case "ENV": {
      const added = { ...env };
      for (let at = 0; at < step.args.length; at += 2) added[step.args[at] ?? ""] = expanded(step.args[at + 1] ?? "", { PATH: defaultPath, ...added });
      return { surroundings: { ...stays, env: added }, folders, action: undefined };
    }
    case "FROM":
      return { surroundings: stays, folders, action: undefined };
    case "USER":
      return { surroundings: { ...stays, user: expanded(first, env) }, folders, action: undefined };
    case "WORKDIR": {
      const path = absolute(expanded(first, env), workdir, user);
      return { surroundings: { ...stays, workdir: path }, folders: [...folders, { path, owner: user }], action: undefined };
    }
    case "RUN":
      return { surroundings: stays, folders: [], action: { kind: "run", command: first, user: second || user, workdir, env, folders, ...secretsOf(step) } };
    case "COPY": {
      const named = expanded(second, env, "keep");
      const full = absolute(named, workdir, user) + (/(^|\/)\.?\.?$/.test(named) && named !== "/" ? "/" : "");
      const target = full === "//" ? "/" : full;
      if (from !== undefined)
        return { surroundings: stays, folders: [], action: { kind: "copy-from", chain: from, source: first, target, owner: third, mode: fourth, folders } };
      return {
        surroundings: stays,
        folders: [],
        action: {
          kind: "copy",
          source: first,
          target,
          owner: third || user,
          mode: fourth,
          filesHash: step.filesHash ?? "",
          folders,
        },
      };
    }
  }
}

/** Steps without secrets keep the cache key that they always had. */
const secretsOf = ({ secrets }: BuildStep) => (secrets == null || secrets.length === 0 ? {} : { secrets });

/** @throws INVALID_REQUEST with the step's number, before the build begins. */
export function checkSteps(steps: readonly BuildStep[]): void {
  steps.forEach((step, at) => {
    const refuse = (why: string) => fail("INVALID_REQUEST", `step ${at + 1} (${step.type}): ${why}`);
    const [first = "", second = "", , mode = ""] = step.args;
    if (step.args.some((arg) => arg.includes("\0"))) refuse("an argument holds NUL");
    if (step.type === "ENV") {
      if (step.args.length === 0 || step.args.length % 2 === 1) refuse("expected name, value, name, value…");
      for (let name = 0; name < step.args.length; name += 2)
        if (!envName.test(step.args[name] ?? "")) refuse(`'${step.args[name]}' is not the name of a variable${cutHint(step.args[name] ?? "")}`);
    } else if (first === "") {
      refuse("the argument is empty");
    }
    if (step.from != null && step.type !== "COPY") refuse("from: only COPY takes files of a stage or an image");
    if (step.secrets != null && step.secrets.length > 0 && step.type !== "RUN") refuse("secrets: only RUN sees them");
    const stage = stageOf(step.type === "FROM" ? first : (step.from ?? ""));
    if (stage !== undefined && stage >= steps.slice(0, at).filter(({ type }) => type === "FROM").length + (step.type === "FROM" ? 1 : 0))
      refuse(`stage ${stage} does not come before it`);
    if (step.type === "COPY") {
      if (second === "") refuse("expected source and destination");
      if (step.from != null) {
        if (/^[/.]*$/.test(first)) refuse("the whole root cannot be copied from a stage, since it holds /proc and /sys: name its directories");
        return;
      }
      if (posix.isAbsolute(first) || posix.normalize(first).startsWith("..")) refuse(`source '${first}' lies outside the build's context`);
      if (!/^([0-7]{3,4})?$/.test(mode)) refuse(`mode '${mode}' is not an octal number`);
      if (step.filesHash == null) refuse("filesHash is missing; upload the files first");
    }
  });
}

/** Returns the key of a step. The same action on the same files has the same key, so its layer can be reused. */
export function stepKey(chain: Chain, action: Action): string {
  return createHash("sha256")
    .update(JSON.stringify(["step:1", chain, action]))
    .digest("hex");
}

/** Returns the number of the stage that `stage:NUMBER` means; undefined for the name of an image. */
export function stageOf(from: string): number | undefined {
  const number = /^stage:(\d{1,4})$/.exec(from)?.[1];
  return number === undefined ? undefined : Number(number);
}

/** The JavaScript SDK cuts a quoted value of a Dockerfile's ENV at its space, which makes a name of the first half. */
function cutHint(name: string): string {
  return /["'=]/.test(name) ? "; if it comes from a Dockerfile that an SDK translated, give the variable by setEnvs, or build with svc template build" : "";
}

export function describeStep({ type, args, from }: BuildStep): string {
  if (from != null) return `${type} --from=${from} ${args.slice(0, 2).join(" ")}`;
  if (type === "ENV") return `ENV ${args.filter((_, at) => at % 2 === 0).join(" ")}`;
  const text = args.filter((arg) => arg !== "").join(" ");
  return `${type} ${text.length > 200 ? `${text.slice(0, 200)}…` : text}`;
}

function absolute(path: string, workdir: string, user: string): string {
  const name = user.split(":")[0];
  const home = name === "root" || name === "0" ? "/root" : `/home/${name}`;
  const full = path === "~" || path.startsWith("~/") ? home + path.slice(1) : path;
  const clean = posix.resolve("/", workdir, full);
  return clean;
}

/** Expands $NAME, ${NAME}, ${NAME:-else} and ${NAME:+then}; a backslash keeps a $. Unknown names become empty as in a shell, or are kept. */
export function expanded(text: string, env: Readonly<Record<string, string>>, unknown: "empty" | "keep" = "empty"): string {
  return text.replace(
    /\\\$|\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?::([-+])([^}]*))?\})/g,
    (match, plain?: string, braced?: string, operator?: string, word = "") => {
      if (match === "\\$") return "$";
      const value = env[plain ?? braced ?? ""] ?? (unknown === "keep" && operator === undefined ? match : "");
      if (operator === "-") return value === "" ? String(word) : value;
      if (operator === "+") return value === "" ? "" : String(word);
      return value;
    },
  );
}
