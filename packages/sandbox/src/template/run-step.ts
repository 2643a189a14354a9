// Runs one step's work inside a sandbox: a command, or copies of files.
import { randomBytes } from "node:crypto";
import { createReadStream } from "node:fs";
import { Readable } from "node:stream";
import { asFailure, Failure, type FailureName, fail } from "@svc/contract/failures.ts";
import type { Guest } from "../agent/guest.ts";
import type { Chain } from "./build-record.ts";
import type { Action, Folder } from "./build-steps.ts";
import { inSandbox, type Job, layered, leftMs, templateOf } from "./builder.ts";
import { copySources } from "./copy-match.ts";

/** Each line of output is a row in a database, so lines are written in batches. */
const FLUSH_LINES = 200;

/** Runs the action over the chain and returns the resulting chain. */
export async function runStep(job: Job, chain: Chain, action: Action, note: string): Promise<{ chain: Chain; layerID: string | undefined }> {
  const done = await layered(job, chain, note, async (guest) => {
    await makeFolders(job, guest, action.folders);
    if (action.kind === "run") await runCommand(job, guest, action);
    if (action.kind === "copy") await copyFiles(job, guest, action);
    if (action.kind === "copy-from") await copyFrom(job, guest, action);
  });
  return { chain: done.chain, layerID: done.layer?.layerID };
}

async function runCommand(job: Job, guest: Guest, { command, user, workdir, env, secrets }: Extract<Action, { kind: "run" }>): Promise<void> {
  const shell = await shellOf(job, guest);
  const given = await placeSecrets(job, guest, secrets ?? [], user);
  const code = await runLogged(job, guest, { cmd: shell, args: ["-c", command], user, env: { ...env, ...given.env }, cwd: workdir }).catch((error: unknown) => {
    throw notStarted(command, error);
  });
  // Files below /run are in no layer; others are removed before the layer is made.
  if (given.files.length > 0) await script(job, guest, 'rm -f -- "$@"', given.files, "a build secret cannot be removed");
  if (code !== 0) fail("INVALID_REQUEST", `the command ended with exit code ${code}: ${shortened(command)}`);
}

/** Gives the command its secrets as files of its user, or as variables. */
async function placeSecrets(
  job: Job,
  guest: Guest,
  mounts: NonNullable<Extract<Action, { kind: "run" }>["secrets"]>,
  user: string,
): Promise<{ env: Record<string, string>; files: string[] }> {
  const env: Record<string, string> = {};
  const files: string[] = [];
  for (const { id, target = `/run/secrets/${id}`, env: variable } of mounts) {
    const value = job.secrets[id];
    if (value === undefined) continue;
    if (variable !== undefined) env[variable] = value;
    if (variable !== undefined && target === `/run/secrets/${id}`) continue;
    const bytes = Buffer.from(value);
    await guest.upload(target, Readable.from([bytes]), bytes.length, job.signal);
    await script(job, guest, 'chown "$1" "$2" && chmod 0400 "$2"', [ownerOf(user), target], `the build secret '${id}'`);
    files.push(target);
  }
  return { env, files };
}

const refusals: ReadonlySet<FailureName> = new Set(["UNAUTHENTICATED", "ACCESS_DENIED", "INVALID_REQUEST"]);

/** If envd refused to start the command (unknown user, missing directory), the message has the form that E2B's clients parse for the command. */
function notStarted(command: string, error: unknown): Failure {
  const failure = asFailure(error);
  if (!refusals.has(failure.name)) return failure;
  const message = `failed to run command '${shortened(command)}': command failed: ${failure.row.connect}: ${failure.message}`;
  return new Failure("INVALID_REQUEST", message, { cause: error });
}

const shortened = (command: string) => (command.length > 300 ? `${command.slice(0, 300)}…` : command);

/** Returns bash if there is one, as for clients' commands; not as a login shell, whose profile would override ENV PATH. */
export async function shellOf(job: Job, guest: Guest): Promise<string> {
  const code = await quietly(job, guest, "/bin/sh", ["-c", "test -x /bin/bash"]).catch((cause: unknown) =>
    fail("INVALID_REQUEST", `the template has no /bin/sh that runs: ${(cause as Error).message}; a template needs a shell`, { cause }),
  );
  return code === 0 ? "/bin/bash" : "/bin/sh";
}

type Logged = { cmd: string; args: readonly string[]; user: string; env?: Readonly<Record<string, string>>; cwd?: string };

/** Runs a command and logs its output by line: stdout as info, stderr as warn. */
export async function runLogged(job: Job, guest: Guest, command: Logged): Promise<number> {
  const { builder, build, step, signal } = job;
  let lines: { level: "info" | "warn"; message: string }[] = [];
  // Thrown after the command ends, because a failure in this callback could not be caught.
  let refused: unknown;
  const flush = () => {
    const ready = lines;
    lines = [];
    try {
      builder.buildLog.write(build.buildID, step, ready);
    } catch (error) {
      refused ??= error;
    }
  };
  let scheduled: NodeJS.Immediate | undefined;
  try {
    const code = await guest.run({
      ...command,
      timeoutMs: leftMs(job),
      signal,
      onLine(kind, message) {
        lines.push({ level: kind === "stdout" ? "info" : "warn", message });
        if (lines.length >= FLUSH_LINES) flush();
        scheduled ??= setImmediate(() => {
          scheduled = undefined;
          flush();
        });
      },
    });
    flush();
    if (refused !== undefined) throw asFailure(refused);
    return code;
  } finally {
    clearImmediate(scheduled);
    flush();
  }
}

/** Runs a command of ours as root without logging; `lines` receives its stdout. */
export function quietly(job: Job, guest: Guest, cmd: string, args: readonly string[], lines?: string[], errors?: string[]): Promise<number> {
  const onLine = (kind: "stdout" | "stderr", line: string) => void (kind === "stdout" ? lines?.push(line) : errors?.push(line));
  return guest.run({ cmd, args, user: "root", cwd: "/", timeoutMs: leftMs(job), signal: job.signal, onLine });
}

/** Runs a script of ours with arguments. @throws with the script's error output. */
export async function script(job: Job, guest: Guest, text: string, args: readonly string[], what: string): Promise<string[]> {
  const lines: string[] = [];
  const errors: string[] = [];
  const code = await quietly(job, guest, "/bin/sh", ["-euc", text, "svc", ...args], lines, errors);
  if (code !== 0) throw new Failure("INVALID_REQUEST", `${what}: ${errors.slice(-3).join(" ") || `ended with ${code}`}`);
  return lines;
}

/** Creates missing folders with `owner`; existing ones are left unchanged. */
const madeFunction = `made() { [ -d "$1" ] && return 0; made "$(dirname "$1")"; mkdir "$1"; chown "$owner" "$1"; }`;

async function makeFolders(job: Job, guest: Guest, folders: readonly Folder[]): Promise<void> {
  for (const { path, owner } of folders) {
    await script(job, guest, `owner=$1; ${madeFunction}; made "$2"`, [ownerOf(owner), path], `WORKDIR ${path}`);
  }
}

const unpack = `mkdir -p "$1"
if [ "$3" = gzip ]; then tar -xzpf "$2" -C "$1"; else tar -xpf "$2" -C "$1"; fi
rm -f "$2"
cd "$1"
find .`;

/** Owner and mode are set before the sources are copied, so that no other files are affected. */
const putFiles = `stage=$1; target=$2; several=$3; owner=$4; mode=$5; shift 5
cd "$stage"
${madeFunction}
[ -z "$mode" ] || chmod -R "$mode" "$@"
if [ -n "$owner" ]; then chown -Rh "$owner" "$@"; else owner=0:0; fi
for source do
  case $target in */) folder=yes ;; *) folder=$several ;; esac
  if [ -d "$source" ] && [ ! -L "$source" ] && [ ! -e "$target" ]; then
    # A folder that the copy makes has the mode of its source.
    made "$(dirname "$target")"
    cp -a "$source" "\${target%/}"
  elif [ -d "$source" ] && [ ! -L "$source" ]; then
    made "$target"
    for entry in "$source"/* "$source"/.[!.]* "$source"/..?*; do
      if [ -e "$entry" ] || [ -L "$entry" ]; then cp -a "$entry" "$target/"; fi
    done
  elif [ "$folder" = yes ] || [ -d "$target" ]; then
    made "$target"
    cp -a "$source" "$target/"
  else
    made "$(dirname "$target")"
    cp -a "$source" "$target"
  fi
done
cd /
rm -rf "$stage"`;

async function copyFiles(job: Job, guest: Guest, { source, target, owner, mode, filesHash }: Extract<Action, { kind: "copy" }>): Promise<void> {
  const files = await job.builder.uploads.find(filesHash);
  const stage = `/tmp/.svc-copy-${randomBytes(6).toString("hex")}`;
  await guest.upload(`${stage}.tar`, createReadStream(files.path), files.sizeBytes, job.signal);
  const paths = await script(job, guest, unpack, [stage, `${stage}.tar`, files.packed], "the files cannot be unpacked");
  const sources = copySources(source, paths);
  await script(job, guest, putFiles, [stage, target, sources.length > 1 ? "yes" : "no", ownerOf(owner), mode, ...sources], `COPY ${source} ${target}`);
}

/** Packs what a pattern matches, from / so that links in the path resolve as in that stage; for a link that itself matches, its target is packed. */
const pack = `IFS=
cd /
set -- $1
[ -e "$1" ] || { echo "nothing matches $1" >&2; exit 1; }
left=$#
while [ "$left" -gt 0 ]; do
  each=$1
  shift
  if [ -L "$each" ]; then each=$(readlink -f "$each"); each=\${each#/}; fi
  set -- "$@" "./$each"
  left=$((left - 1))
done
tar -cf /tmp/.svc-from.tar "$@"
wc -c < /tmp/.svc-from.tar
printf '%s\\n' "$@"`;

/** Copies files of another chain: a sandbox of it packs them, and they pass through the node to this one. */
async function copyFrom(job: Job, guest: Guest, { chain, source, target, owner, mode }: Extract<Action, { kind: "copy-from" }>): Promise<void> {
  const stage = `/tmp/.svc-copy-${randomBytes(6).toString("hex")}`;
  const what = `COPY ${source} ${target}`;
  const pattern = source.replace(/^\/+/, "") || ".";
  const sources = await inSandbox(job, templateOf(job, chain), async (from) => {
    const [size = "", ...names] = await script(job, from, pack, [pattern], what);
    const body = await from.download("/tmp/.svc-from.tar", job.signal);
    await guest.upload(`${stage}.tar`, body, Number(size.trim()), job.signal);
    return names;
  });
  await script(job, guest, unpack, [stage, `${stage}.tar`, "plain"], what);
  await script(job, guest, putFiles, [stage, target, sources.length > 1 ? "yes" : "no", owner === "" ? "" : ownerOf(owner), mode, ...sources], what);
}

/** A user name alone implies its own group; a number alone is used for both user and group. */
function ownerOf(owner: string): string {
  if (owner.includes(":")) return owner;
  return /^\d+$/.test(owner) ? `${owner}:${owner}` : `${owner}:`;
}
