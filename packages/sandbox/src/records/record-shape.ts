// Parses a sandbox's record; one that lacks required members is refused rather than completed by guesses.
import { realpathSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { issueText } from "@svc/contract/issues.ts";
import { z } from "zod";
import { type RuntimeHandle, runtimeNames } from "../runtime/runtime.ts";
import type { SandboxRecord } from "./state.ts";

/** Above every process id of Linux. */
const NO_PROCESS = 2 ** 30;

const handle = z.looseObject({ runtime: z.enum(runtimeNames), runtimeID: z.string(), directory: z.string(), pid: z.number() });
const claim = z.looseObject({ deadlineMs: z.number(), timeoutSeconds: z.number(), secure: z.boolean(), metadata: z.record(z.string(), z.string()) });
const kept = z.looseObject({ checkpointID: z.string(), kind: z.enum(["memory", "filesystem"]), runtime: z.enum(runtimeNames) });

const status = z.discriminatedUnion("state", [
  z.looseObject({ state: z.literal("creating") }),
  z.looseObject({ state: z.literal("warm"), handle }),
  z.looseObject({ state: z.literal("running"), handle, claim }),
  z.looseObject({ state: z.literal("pausing"), handle, claim, kept }),
  z.looseObject({ state: z.literal("paused"), claim, kept }),
  z.looseObject({ state: z.literal("resuming"), claim, kept }),
  z.looseObject({ state: z.literal("killing"), reason: z.string() }),
]);
const record = z.looseObject({
  sandboxID: z.string(),
  bootID: z.string(),
  directory: z.string(),
  templateID: z.string(),
  image: z.looseObject({ rootfs: z.string(), binds: z.array(z.string()) }),
  limits: z.looseObject({ memoryMB: z.number(), diskSizeMB: z.number() }),
  status,
});

/**
 * Accepts paths in a record only below its own home: a copy of a home, such as a backup, must neither remove nor reach what runs in the original.
 * @throws with what is wrong about the record.
 */
export function readRecord(sandboxID: string, text: string, home: string): SandboxRecord {
  const parsed = record.safeParse(JSON.parse(text));
  if (!parsed.success) throw new Error(`its record is incomplete: ${issueText(parsed.error)}`);
  if (parsed.data.sandboxID !== sandboxID) throw new Error(`its record is that of '${parsed.data.sandboxID}'`);
  return atHome(parsed.data as unknown as SandboxRecord, join(home, "sandboxes"));
}

function atHome(found: SandboxRecord, folder: string): SandboxRecord {
  const directory = join(folder, found.sandboxID);
  const { status } = found;
  if (!("handle" in status) || status.handle === undefined) return { ...found, directory };
  // A sandbox that was started in a precreated one uses that one's folder.
  const own = join(folder, basename(status.handle.directory));
  const isHere = isSame(dirname(found.directory), folder) && isSame(status.handle.directory, own) && basename(own) === status.handle.runtimeID;
  const handle = isHere ? { ...status.handle, directory: own } : notHere(status.handle, directory);
  return { ...found, directory, status: { ...status, handle } as SandboxRecord["status"] };
}

/** Returns a handle without a process: the sandbox runs, if at all, in another home, so in this one it counts as ended. */
function notHere(handle: RuntimeHandle, directory: string): RuntimeHandle {
  return { ...handle, directory, pid: NO_PROCESS, pidStartTicks: 0, network: undefined };
}

/** A home behind a symbolic link has several paths. */
function isSame(one: string, another: string): boolean {
  if (one === another) return true;
  try {
    return realpathSync(one) === realpathSync(another);
  } catch {
    return false;
  }
}
