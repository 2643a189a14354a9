// Resume: start from the capture on a network slot of its own, tell envd what changed, then let the capture go.
import { randomUUID } from "node:crypto";
import { asFailure, fail } from "@svc/contract/failures.ts";
import type { NetworkSlot } from "../network/networks.ts";
import type { CaptureKind, Runtime, RuntimeHandle } from "../runtime/runtime.ts";
import { beginAgain } from "./begin-again.ts";
import { bringUp } from "./bring-up.ts";
import { checkRoom } from "./create.ts";
import { tellAll, tellReturn } from "./identity.ts";
import type { Node } from "./node.ts";
import { isPaused, type PausedRecord, type RunningRecord } from "./registry.ts";

export type ResumeRequest = {
  readonly timeoutSeconds: number;
  /** `filesystem`: its files alone, also where its memory was kept. */
  readonly kind?: CaptureKind | undefined;
  readonly cause: "request" | "connect" | "traffic";
  /** Of traffic: the address it came from. */
  readonly client?: string;
};

/** The sandbox runs and answers when this returns. @throws what a start throws, SNAPSHOT_DAMAGED; then it stays paused. */
export function resumeSandbox(node: Node, sandboxID: string, request: ResumeRequest): Promise<{ record: RunningRecord; resumed: boolean }> {
  return node.turns.run(sandboxID, async () => {
    const known = node.registry.get(sandboxID);
    // Whoever waited for another's resume finds it running.
    if (!isPaused(known)) return { record: node.registry.running(sandboxID), resumed: false };
    checkRoom(node);
    node.creating++;
    try {
      const attempt = () => {
        const paused = node.registry.get(sandboxID);
        // An end may have been decided since the last attempt.
        return isPaused(paused) ? resume(node, paused, request) : Promise.resolve(node.registry.running(sandboxID));
      };
      return { record: await beginAgain(node, () => node.gate.run(attempt)), resumed: true };
    } finally {
      node.creating--;
    }
  });
}

async function resume(node: Node, paused: PausedRecord, request: ResumeRequest): Promise<RunningRecord> {
  const { sandboxID, directory } = paused;
  const { kept, claim } = paused.status;
  const runtime = node.runtimeNamed(kept.runtime);
  const begin = performance.now();
  node.registry.move(sandboxID, { event: "resuming", kept });
  const undo: (() => Promise<unknown>)[] = [];
  let filesOnly: string | undefined;
  try {
    let from = kept;
    if (request.kind === "filesystem" && kept.kind === "memory") {
      from = { ...kept, kind: "filesystem", captureID: node.captures.newID() };
      filesOnly = from.captureID;
      await keepFilesAlone(node, runtime, paused, from.captureID, undo);
    }
    // A start from files alone is a boot: programs that read boot_id must see it.
    const guestBootID = from.kind === "memory" ? paused.guestBootID : randomUUID();
    const handle = await run(node, runtime, paused, { captureID: from.captureID, guestBootID }, undo);
    if (from.kind === "memory") await node.stages(runtime.name)("identity", () => tellReturn(node, paused, handle, claim));
    else await tellAll(node, paused, handle, claim, "returned");
    const deadlineMs = node.clock.monotonicMs() + request.timeoutSeconds * 1000;
    const { timeoutSeconds } = request;
    const record = node.registry.resumed(sandboxID, { event: "resumed", handle, deadlineMs, timeoutSeconds }, { bootID: node.bootID, guestBootID });
    node.metrics.resumeSeconds.observe({ cause: request.cause, kind: from.kind }, (performance.now() - begin) / 1000);
    node.tell("sandbox.resumed", record, {
      cause: request.cause,
      kind: from.kind,
      timeoutSeconds,
      ...(request.client === undefined ? {} : { client: request.client }),
    });
    // Nobody's from here on: what a kill leaves of it is swept at the next start.
    void node.captures
      .remove(kept.captureID)
      .catch((error: unknown) =>
        node.log.error({ err: error, sandboxID }, "the capture of a resumed sandbox could not be removed; the next start of the node tries again"),
      );
    return record;
  } catch (error) {
    await runtime
      .destroy({ runtimeID: sandboxID, directory })
      .catch((left: unknown) => node.log.error({ err: left, sandboxID }, "a half-resumed sandbox could not be removed"));
    for (const step of undo)
      await step().catch((left: unknown) => node.log.error({ err: left, sandboxID }, "a half-resumed sandbox's network could not be removed"));
    node.registry.moveBack(sandboxID, { event: "stayed" });
    node.log.warn({ err: error, sandboxID }, "a sandbox could not be resumed; it stays paused");
    throw asFailure(error);
  } finally {
    if (filesOnly !== undefined) {
      await node.captures.remove(filesOnly).catch((left: unknown) => node.log.error({ err: left, sandboxID }, "a capture of files alone could not be removed"));
    }
  }
}

type From = { readonly captureID: string; readonly guestBootID: string };

async function run(node: Node, runtime: Runtime, record: PausedRecord, from: From, undo: (() => Promise<unknown>)[]): Promise<RuntimeHandle> {
  // What an earlier run left: its end may have been cut off.
  if (!node.takenDown.delete(record.sandboxID)) await runtime.destroy({ runtimeID: record.sandboxID, directory: record.directory });
  const onSlot = (slot: NetworkSlot) => void undo.push(async () => node.networks?.detach(slot));
  return bringUp(node, { record, runtime, ...from, egress: record.status.claim.egress, onSlot });
}

/** Files can be read out of a memory capture only by the sandbox itself: it is brought back frozen to the world, and captured again. */
async function keepFilesAlone(node: Node, runtime: Runtime, record: PausedRecord, captureID: string, undo: (() => Promise<unknown>)[]): Promise<void> {
  if (!runtime.captures.has("filesystem")) fail("CAPTURE_UNAVAILABLE", `the ${runtime.name} driver cannot start a sandbox from its files alone`);
  const handle = await run(node, runtime, record, { captureID: record.status.kept.captureID, guestBootID: record.guestBootID }, undo);
  await runtime.freeze(handle);
  await node.captures.take(captureID, "filesystem", runtime.name, (into) => runtime.capture(handle, into), node.images.groundOf(record.image));
  await runtime.destroy({ runtimeID: record.sandboxID, directory: record.directory });
  for (const step of undo.splice(0)) await step();
}
