// A sandbox's record as it is read back: one that lacks what every record has is named, not guessed at.
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
 * What a record says of where things lie is believed of its own home alone: a copy of a home's records, as a backup is, must
 * neither remove nor reach what runs in the home that it was taken from.
 * @throws with what is wrong about it.
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
  // A sandbox that went on in a precreated sandbox runs in the precreated sandbox's.
  const own = join(folder, basename(status.handle.directory));
  const isHere = isSame(dirname(found.directory), folder) && isSame(status.handle.directory, own) && basename(own) === status.handle.runtimeID;
  const handle = isHere ? { ...status.handle, directory: own } : notHere(status.handle, directory);
  return { ...found, directory, status: { ...status, handle } as SandboxRecord["status"] };
}

/** The sandbox runs in another home, if at all: here it has ended. */
function notHere(handle: RuntimeHandle, directory: string): RuntimeHandle {
  return { ...handle, directory, pid: NO_PROCESS, pidStartTicks: 0, network: undefined };
}

/** One folder has several names where a home lies behind a symbolic link. */
function isSame(one: string, another: string): boolean {
  if (one === another) return true;
  try {
    return realpathSync(one) === realpathSync(another);
  } catch {
    return false;
  }
}
