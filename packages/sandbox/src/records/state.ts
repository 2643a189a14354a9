// A sandbox's lifecycle as a state machine: every transition is here, every effect elsewhere.
import assert from "node:assert/strict";
import type { IdentityToken } from "@svc/contract/secrets.ts";
import type { EgressPolicy } from "../egress/policy.ts";
import type { CheckpointKind, DeathReason, Limits, RootImage, RuntimeHandle, RuntimeName, VolumeReference } from "../runtime/runtime.ts";

/*
 *   creating ──started──▶ warm ──claimed──▶ running ◀──────────── thawed (the checkpoint failed) ───┐
 *                                            ▲ │  └──pausing──▶ pausing ──────────────────────────┘
 *                                  deadline, │ │                   │ paused (the checkpoint is complete)
 *                                    egress  └─┘                   ▼
 *            running ◀──resumed── resuming ◀──resuming────────── paused ⟲ egress
 *                                    └──────stayed (it failed)─────▲
 *   any of them ──dying──▶ killing                                        (then its record is removed)
 *
 * creating: parts may exist, incomplete.  warm: envd answers, no client owns it yet (the pool, or a create under way).
 * running: a client owns it.              pausing: it is frozen, and a checkpoint is being written.
 * paused: nothing of it runs, only its checkpoint exists.  resuming: parts of its next run may exist; the checkpoint stays complete.
 * killing: its end is decided and will be completed, by this process or by the next start.
 */

/** The settings with which a client owns a sandbox. */
export type Claim = {
  readonly startedAtWallMs: number;
  /** On the monotonic clock of `bootID`; without meaning while the sandbox is paused. */
  readonly deadlineMs: number;
  /** The timeout of the create or of the last change; forks inherit it. */
  readonly timeoutSeconds: number;
  readonly onTimeout: "kill" | "pause";
  /** The kind of checkpoint that a pause at the timeout takes. */
  readonly pauseKind: CheckpointKind;
  /** True if traffic to the paused sandbox resumes it. */
  readonly autoResume: boolean;
  /** The idle time after which it is paused; 0: never; absent: the node's setting. */
  readonly idlePauseSeconds?: number | undefined;
  readonly secure: boolean;
  readonly trafficPrivate: boolean;
  readonly egress: EgressPolicy;
  readonly maskRequestHost: string | undefined;
  /** Ports whose servers speak TLS themselves; absent if there are none, and in records of earlier versions. */
  readonly httpsPorts?: readonly number[] | undefined;
  readonly metadata: Readonly<Record<string, string>>;
  /** Sent to envd when it starts again (a resume from files alone). */
  readonly envVars: Readonly<Record<string, string>>;
  readonly user: string;
  readonly workdir: string;
  /** The file API uses only its user's permissions. */
  readonly strictFiles?: boolean | undefined;
  /** The volumes that it mounts; absent in records of earlier versions. */
  readonly volumes?: readonly VolumeReference[] | undefined;
  /** The identity tokens that rules by host may insert; absent if it has none. */
  readonly tokens?: Readonly<Record<string, IdentityToken>> | undefined;
  /** The template's name in the request. */
  readonly alias: string | undefined;
  /** For a fork: its source, and how many forks precede it. */
  readonly parentSandboxID: string | undefined;
  readonly forkDepth: number;
  /** The tenant whose key created it; absent: the deployment's own key. Forks inherit it. */
  readonly tenant?: string | undefined;
  /** The id of that key; absent: the deployment's own key, and in records of earlier versions. */
  readonly keyID?: string | undefined;
};

/** The checkpoint that holds a sandbox's memory and files while it does not run. */
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
      /** Kept in the record so that any process that completes the end also removes the checkpoint. */
      readonly kept?: Kept | undefined;
    };

export type SandboxRecord = {
  readonly sandboxID: string;
  readonly bootID: string;
  readonly directory: string;
  readonly templateID: string;
  /** The checkpoint it was created from; absent if it started from the image. */
  readonly checkpointID?: string | undefined;
  readonly image: RootImage;
  readonly envdVersion: string;
  /** The file name in `bin` of the home: a restored envd needs the program that it ran. */
  readonly envd: string;
  /** The base64 public key that its envd accepts. Absent: the home's own key, in records from before there were several. */
  readonly initKey?: string | undefined;
  /** The value of /proc/sys/kernel/random/boot_id inside; new at every start of the sandbox's system. */
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

/** Returns the state after `event`; asserts that the transition exists. */
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
      // The first reason stays: a timeout during a delete does not change its reason.
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
