// The life of a sandbox as a state machine: every move is here, every effect is elsewhere.
import assert from "node:assert/strict";
import type { EgressPolicy } from "../egress/policy.ts";
import type { CheckpointKind, DeathReason, Limits, RootImage, RuntimeHandle, RuntimeName } from "../runtime/runtime.ts";

/*
 *   creating ──started──▶ warm ──claimed──▶ running ◀──────────── thawed (the checkpoint failed) ───┐
 *                                            ▲ │  └──pausing──▶ pausing ──────────────────────────┘
 *                                  deadline, │ │                   │ paused (the checkpoint is whole)
 *                                    egress  └─┘                   ▼
 *            running ◀──resumed── resuming ◀──resuming────────── paused ⟲ egress
 *                                    └──────stayed (it failed)─────▲
 *   any of them ──dying──▶ killing                                        (then its record goes away)
 *
 * creating: parts may exist, half-made.   warm: envd answers, nobody owns it yet (the pool, or a create under way).
 * running: a client owns it.              pausing: it is frozen, and a checkpoint is being written.
 * paused: nothing of it runs; its checkpoint is all there is.  resuming: parts of its next run may exist; the checkpoint is still whole.
 * killing: its end is decided and will be finished, also by the next start.
 */

/** What a client asked for when it took the sandbox. */
export type Claim = {
  readonly startedAtWallMs: number;
  /** On the monotonic clock of `bootID`; of a paused sandbox, without meaning. */
  readonly deadlineMs: number;
  /** As asked at create or last set; what a fork inherits. */
  readonly timeoutSeconds: number;
  readonly onTimeout: "kill" | "pause";
  /** What a pause at the timeout keeps. */
  readonly pauseKind: CheckpointKind;
  /** Traffic to the paused sandbox resumes it. */
  readonly autoResume: boolean;
  /** Paused after so long without anything to do; 0: never; absent: as the node's settings say. */
  readonly idlePauseSeconds?: number | undefined;
  readonly secure: boolean;
  readonly trafficPrivate: boolean;
  readonly egress: EgressPolicy;
  readonly maskRequestHost: string | undefined;
  readonly metadata: Readonly<Record<string, string>>;
  /** Told to envd when it starts anew (a resume from files alone). */
  readonly envVars: Readonly<Record<string, string>>;
  readonly user: string;
  readonly workdir: string;
  /** The file API reaches files with its user's rights alone. */
  readonly strictFiles?: boolean | undefined;
  /** The name by which the template was asked for. */
  readonly alias: string | undefined;
  /** Of a fork: the sandbox it was copied from, and how many forks lie behind it. */
  readonly parentSandboxID: string | undefined;
  readonly forkDepth: number;
};

/** Where a sandbox's memory and files are kept while it does not run. */
export type Kept = { readonly checkpointID: string; readonly kind: CheckpointKind; readonly runtime: RuntimeName };

export type Status =
  | { readonly state: "creating" }
  | { readonly state: "warm"; readonly handle: RuntimeHandle }
  | { readonly state: "running"; readonly handle: RuntimeHandle; readonly claim: Claim }
  | { readonly state: "pausing"; readonly handle: RuntimeHandle; readonly claim: Claim; readonly kept: Kept }
  | { readonly state: "paused"; readonly claim: Claim; readonly kept: Kept; readonly pausedAtWallMs: number }
  | { readonly state: "resuming"; readonly claim: Claim; readonly kept: Kept; readonly pausedAtWallMs: number }
  | {
      readonly state: "killing";
      readonly reason: DeathReason;
      readonly handle: RuntimeHandle | undefined;
      readonly claim: Claim | undefined;
      /** Its checkpoint goes with it, also when its end is finished by another process. */
      readonly kept?: Kept | undefined;
    };

export type SandboxRecord = {
  readonly sandboxID: string;
  readonly bootID: string;
  readonly directory: string;
  readonly templateID: string;
  /** What it went on from at its creation, if not from the image alone. */
  readonly checkpointID?: string | undefined;
  readonly image: RootImage;
  readonly envdVersion: string;
  /** Below `bin` of the home: a restored envd goes on in the very program that it ran. */
  readonly envd: string;
  /** The public half, base64, of the key that its envd obeys. Absent: the home's own of before there were several. */
  readonly initKey?: string | undefined;
  /** What /proc/sys/kernel/random/boot_id says inside; new at every start of the sandbox's system. */
  readonly guestBootID: string;
  readonly limits: Limits;
  readonly status: Status;
};

export type Event =
  | { readonly event: "started"; readonly handle: RuntimeHandle }
  | { readonly event: "claimed"; readonly claim: Claim }
  | { readonly event: "deadline"; readonly deadlineMs: number; readonly timeoutSeconds: number }
  | { readonly event: "egress"; readonly egress: EgressPolicy }
  | { readonly event: "pausing"; readonly kept: Kept }
  | { readonly event: "thawed"; readonly deadlineMs: number }
  | { readonly event: "paused"; readonly pausedAtWallMs: number }
  | { readonly event: "resuming"; readonly kept: Kept }
  | { readonly event: "stayed" }
  | { readonly event: "resumed"; readonly handle: RuntimeHandle; readonly deadlineMs: number; readonly timeoutSeconds: number }
  | { readonly event: "dying"; readonly reason: DeathReason };

/** The state after `event`; asserts that the move exists. */
export function advance(status: Status, event: Event): Status {
  const refused = () => assert.fail(`${event.event} in state ${status.state}`);
  switch (event.event) {
    case "started":
      if (status.state !== "creating") return refused();
      return { state: "warm", handle: event.handle };
    case "claimed":
      if (status.state !== "warm") return refused();
      return { state: "running", handle: status.handle, claim: event.claim };
    case "deadline":
      if (status.state !== "running") return refused();
      return { ...status, claim: { ...status.claim, deadlineMs: event.deadlineMs, timeoutSeconds: event.timeoutSeconds } };
    case "egress":
      if (status.state !== "running" && status.state !== "paused") return refused();
      return { ...status, claim: { ...status.claim, egress: event.egress } };
    case "pausing":
      if (status.state !== "running") return refused();
      return { ...status, state: "pausing", kept: event.kept };
    case "thawed":
      if (status.state !== "pausing") return refused();
      return { state: "running", handle: status.handle, claim: { ...status.claim, deadlineMs: event.deadlineMs } };
    case "paused":
      if (status.state !== "pausing") return refused();
      return { state: "paused", claim: status.claim, kept: status.kept, pausedAtWallMs: event.pausedAtWallMs };
    case "resuming":
      if (status.state !== "paused") return refused();
      return { ...status, state: "resuming", kept: event.kept };
    case "stayed":
      if (status.state !== "resuming") return refused();
      return { ...status, state: "paused" };
    case "resumed": {
      if (status.state !== "resuming") return refused();
      const { deadlineMs, timeoutSeconds } = event;
      return { state: "running", handle: event.handle, claim: { ...status.claim, deadlineMs, timeoutSeconds } };
    }
    case "dying":
      // The first reason stands: a timeout that meets a delete under way stays a delete.
      if (status.state === "killing") return status;
      return {
        state: "killing",
        reason: event.reason,
        handle: "handle" in status ? status.handle : undefined,
        claim: "claim" in status ? status.claim : undefined,
        kept: "kept" in status ? status.kept : undefined,
      };
  }
}
