// A sandbox's record as it is read back: one that lacks what every record has is named, not guessed at.
import { z } from "zod";
import { runtimeNames } from "../runtime/runtime.ts";
import type { SandboxRecord } from "./state.ts";

const handle = z.looseObject({ runtime: z.enum(runtimeNames), runtimeID: z.string(), directory: z.string(), pid: z.number() });
const claim = z.looseObject({ deadlineMs: z.number(), timeoutSeconds: z.number(), secure: z.boolean(), metadata: z.record(z.string(), z.string()) });
const kept = z.looseObject({ captureID: z.string(), kind: z.enum(["memory", "filesystem"]), runtime: z.enum(runtimeNames) });

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

/** @throws with what is wrong about it. */
export function readRecord(sandboxID: string, text: string): SandboxRecord {
  const parsed = record.safeParse(JSON.parse(text));
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    throw new Error(`its record is incomplete: ${issue?.path.join(".")}: ${issue?.message}`);
  }
  if (parsed.data.sandboxID !== sandboxID) throw new Error(`its record is that of '${parsed.data.sandboxID}'`);
  return parsed.data as unknown as SandboxRecord;
}
