// The life of a sandbox as a state machine: every move is here, every effect is elsewhere.
import assert from "node:assert/strict";
import type { DeathReason, Limits, RuntimeHandle } from "../runtime/runtime.ts";

/*
 *   creating ──started──▶ warm ──claimed──▶ running ──extended──┐
 *      │                   │                  │  ▲              │
 *      │ dying             │ dying            │  └──────────────┘
 *      ▼                   ▼                  ▼ dying
 *      └────────────▶  killing  ◀────────────┘        (then its record goes away)
 *
 * creating: parts may exist, half-made.   warm: envd answers, nobody owns it yet (the pool, or a create under way).
 * running: a client owns it.              killing: its end is decided and will be finished, also by the next start.
 */

/** What a client asked for when it took the sandbox. */
export type Claim = {
  readonly startedAtWallMs: number;
  /** On the monotonic clock of `bootID`. */
  readonly deadlineMs: number;
  readonly secure: boolean;
  readonly trafficPrivate: boolean;
  readonly allowInternet: boolean;
  readonly maskRequestHost: string | undefined;
  readonly metadata: Readonly<Record<string, string>>;
  /** The name by which the template was asked for. */
  readonly alias: string | undefined;
};

export type Status =
  | { readonly state: "creating" }
  | { readonly state: "warm"; readonly handle: RuntimeHandle }
  | { readonly state: "running"; readonly handle: RuntimeHandle; readonly claim: Claim }
  | { readonly state: "killing"; readonly reason: DeathReason; readonly handle: RuntimeHandle | undefined; readonly claim: Claim | undefined };

export type SandboxRecord = {
  readonly sandboxID: string;
  readonly bootID: string;
  readonly directory: string;
  readonly templateID: string;
  readonly envdVersion: string;
  readonly limits: Limits;
  readonly status: Status;
};

export type Event =
  | { readonly event: "started"; readonly handle: RuntimeHandle }
  | { readonly event: "claimed"; readonly claim: Claim }
  | { readonly event: "deadline"; readonly deadlineMs: number }
  | { readonly event: "dying"; readonly reason: DeathReason };

/** The state after `event`; asserts that the move exists. */
export function advance(status: Status, event: Event): Status {
  switch (event.event) {
    case "started":
      assert(status.state === "creating", `started in state ${status.state}`);
      return { state: "warm", handle: event.handle };
    case "claimed":
      assert(status.state === "warm", `claimed in state ${status.state}`);
      return { state: "running", handle: status.handle, claim: event.claim };
    case "deadline":
      assert(status.state === "running", `deadline in state ${status.state}`);
      return { ...status, claim: { ...status.claim, deadlineMs: event.deadlineMs } };
    case "dying":
      // The first reason stands: a timeout that meets a delete under way stays a delete.
      if (status.state === "killing") return status;
      return {
        state: "killing",
        reason: event.reason,
        handle: status.state === "creating" ? undefined : status.handle,
        claim: status.state === "running" ? status.claim : undefined,
      };
  }
}
