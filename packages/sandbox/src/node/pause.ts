// Pause: freeze, capture, and only when the capture is whole and on record, take the running parts away.
import { fail } from "@svc/contract/failures.ts";
import type { CaptureKind } from "../runtime/runtime.ts";
import { untilHealthy } from "./envd.ts";
import type { Node } from "./node.ts";
import type { RunningRecord } from "./registry.ts";
import type { Kept } from "./state.ts";

/** A timeout's pause that failed is tried again after this; the sandbox runs on meanwhile, since ending it would lose its files. */
export const PAUSE_RETRY_MS = 60_000;
const GUEST_ANSWERS_MS = 2_000;
/** What envd knows of its processes can be read while the sandbox is paused, if it says so this fast. */
const COLLECT_MS = 100;
const PARTS_ATTEMPTS = 3;

export type PauseRequest = { readonly kind: CaptureKind; readonly cause: "request" | "timeout"; readonly requireHealthyGuest?: boolean };

/**
 * Returns when its capture is whole and on record; its running parts go right after, and whatever is asked of it next waits for that.
 * @throws SANDBOX_PAUSED when it is paused already; CAPTURE_UNAVAILABLE, CAPTURE_FAILED, DISK_FULL: then it runs on.
 */
export function pauseSandbox(node: Node, sandboxID: string, request: PauseRequest): Promise<void> {
  const paused = Promise.withResolvers<void>();
  node.turns
    .run(sandboxID, async () => {
      const record = node.registry.running(sandboxID);
      // Set anew while it waited for its turn.
      if (request.cause === "timeout" && record.status.claim.deadlineMs > node.clock.monotonicMs()) return;
      await pause(node, record, request);
      paused.resolve();
      await takeRunningParts(node, record);
    })
    .then(paused.resolve, paused.reject);
  return paused.promise;
}

async function pause(node: Node, record: RunningRecord, { kind, cause, requireHealthyGuest }: PauseRequest): Promise<void> {
  const { sandboxID } = record;
  const { handle, claim } = record.status;
  const runtime = node.runtimeNamed(handle.runtime);
  checkCapture(node, record, kind);
  if (requireHealthyGuest === true) {
    await untilHealthy(handle, GUEST_ANSWERS_MS, () => runtime.isAlive(handle)).catch((cause: unknown) =>
      fail("GUEST_UNRESPONSIVE", `sandbox '${sandboxID}' was not paused: its envd did not answer within ${GUEST_ANSWERS_MS} ms`, { cause }),
    );
  }
  await node.observe.collect(sandboxID, COLLECT_MS);
  const kept: Kept = { captureID: node.captures.newID(), kind, runtime: runtime.name };
  const stage = node.stages(runtime.name);
  // I11: the record names the capture before it exists, and says `paused` only when it is whole.
  node.registry.move(sandboxID, { event: "pausing", kept });
  node.proxy?.drop(sandboxID);
  try {
    await stage("freeze", () => runtime.freeze(handle));
    const { sizeBytes } = await stage("capture", () =>
      node.captures.take(kept.captureID, kind, runtime.name, (into) => runtime.capture(handle, into), node.images.groundOf(record.image)),
    );
    node.registry.move(sandboxID, { event: "paused", pausedAtWallMs: node.clock.wallMs() });
    node.tell("sandbox.paused", record, { cause, kind, sizeBytes });
  } catch (error) {
    // Also one that is whole, where only its record found no room.
    await node.captures
      .remove(kept.captureID)
      .catch((left: unknown) => node.log.error({ err: left, sandboxID }, "the capture of a failed pause could not be removed"));
    await thaw(node, sandboxID, cause === "timeout" ? node.clock.monotonicMs() + PAUSE_RETRY_MS : claim.deadlineMs);
    node.tell("sandbox.pause_failed", record, { cause, message: (error as Error).message.slice(0, 500) });
    throw error;
  }
}

/** It is on record as running only when it runs: one that cannot be thawed stays `pausing`, and the watch tries again. */
async function thaw(node: Node, sandboxID: string, deadlineMs: number): Promise<void> {
  const record = node.registry.get(sandboxID);
  if (record?.status.state !== "pausing") return void node.frozen.delete(sandboxID);
  const { handle } = record.status;
  const runtime = node.runtimeNamed(handle.runtime);
  if (!runtime.isAlive(handle)) {
    node.frozen.delete(sandboxID);
    // Noticed like any other death, with its reason.
    return void node.registry.moveBack(sandboxID, { event: "thawed", deadlineMs });
  }
  try {
    await runtime.thaw(handle);
    node.frozen.delete(sandboxID);
    node.registry.moveBack(sandboxID, { event: "thawed", deadlineMs });
  } catch (error) {
    if (!node.frozen.has(sandboxID))
      node.log.error({ err: error, sandboxID }, "a sandbox whose pause failed could not be thawed; it stands still, and it is tried again");
    node.frozen.add(sandboxID);
  }
}

/** For the watch. */
export function retryThaws(node: Node): void {
  for (const sandboxID of node.frozen) {
    const { status } = node.registry.get(sandboxID) ?? {};
    const deadlineMs = status?.state === "pausing" ? Math.max(status.claim.deadlineMs, node.clock.monotonicMs() + PAUSE_RETRY_MS) : 0;
    void node.turns
      .run(sandboxID, () => thaw(node, sandboxID, deadlineMs))
      .catch((error: unknown) => node.log.error({ err: error, sandboxID }, "a thaw could not be tried"));
  }
}

/** Nothing is lost when this is cut off: what stays behind is found by the next resume or start. */
async function takeRunningParts(node: Node, { sandboxID, directory, status }: RunningRecord): Promise<void> {
  const { runtime: name, network } = status.handle;
  const runtime = node.runtimeNamed(name);
  await severalTimes(() => node.stages(name)("destroy", () => runtime.destroy({ runtimeID: sandboxID, directory })))
    .then(() => node.takenDown.add(sandboxID))
    .catch((error: unknown) => node.log.error({ err: error, sandboxID }, "the running parts of a paused sandbox could not be removed; its resume tries again"));
  if (network === undefined) return;
  void severalTimes(async () => node.networks?.detach(network)).catch((error: unknown) =>
    node.log.error({ err: error, sandboxID }, "the network of a paused sandbox could not be removed"),
  );
}

/** What works for it may just have been killed; it is asked again at once, since a paused sandbox should hold nothing. */
async function severalTimes(work: () => Promise<void>): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await work();
    } catch (error) {
      if (attempt >= PARTS_ATTEMPTS) throw error;
    }
  }
}

/** @throws CAPTURE_UNAVAILABLE when this sandbox's driver cannot do it, or its envd is not the node's to start again. */
export function checkCapture(node: Node, { sandboxID, envd, status }: RunningRecord, kind: CaptureKind): void {
  const runtime = node.runtimeNamed(status.handle.runtime);
  if (!runtime.captures.has(kind)) {
    fail(
      "CAPTURE_UNAVAILABLE",
      kind === "memory" && runtime.captures.has("filesystem")
        ? `the ${runtime.name} driver cannot keep the memory of sandbox '${sandboxID}'; ask for memory: false, which keeps its files, or run it with the gvisor driver`
        : `the ${runtime.name} driver cannot keep the ${kind} of sandbox '${sandboxID}'`,
    );
  }
  if (envd === "") {
    fail(
      "CAPTURE_UNAVAILABLE",
      `sandbox '${sandboxID}' was started by an earlier version of svc, which did not keep what a capture needs; create a new one to pause, fork or snapshot it`,
    );
  }
}
