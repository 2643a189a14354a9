// Hands a warm sandbox over to its client: envd gets its identity, then the claim is recorded, and from then on the client owns it.
import { fail } from "@svc/contract/failures.ts";
import type { Report } from "../../observe/open-observe.ts";
import type { Clock } from "../../records/clock.ts";
import type { IdempotentCreate } from "../../records/create-keys.ts";
import type { Registry } from "../../records/registry.ts";
import type { Claim, SandboxRecord } from "../../records/state.ts";
import type { Ends } from "../supply/end.ts";
import type { Identities, Origin } from "../supply/identity.ts";
import type { Stages } from "../supply/node-metrics.ts";
import type { Trust } from "../supply/trust.ts";
import type { Answerable } from "./answer.ts";

export type HandOverParts = {
  readonly clock: Clock;
  readonly registry: Pick<Registry, "claim">;
  readonly identities: Pick<Identities, "sendAll">;
  readonly ends: Pick<Ends, "end">;
  readonly trust: Pick<Trust, "install">;
  readonly stages: Stages;
  readonly report: Report;
};

export type HandOver = (
  warm: SandboxRecord,
  asked: Claim,
  origin: Origin,
  idempotent?: { readonly key: string; readonly bodyHash: string } | undefined,
) => Promise<Answerable>;

/** A sandbox that cannot be handed over is ended. */
export function openHandOver({ clock, registry, identities, trust, ends, stages, report }: HandOverParts): HandOver {
  return async (warm, asked, origin, idempotent) => {
    const { sandboxID, templateID } = warm;
    const claim: Claim = { ...asked, startedAtWallMs: clock.wallMs(), deadlineMs: clock.monotonicMs() + asked.timeoutSeconds * 1000 };
    const { alias, secure, trafficPrivate } = claim;
    const answerable: Answerable = { sandboxID, templateID, alias, secure, trafficPrivate, envdVersion: warm.envdVersion };
    await using undo = new AsyncDisposableStack();
    undo.defer(() => ends.end(sandboxID, "crashed"));
    const { status } = warm;
    if (status.state !== "warm") fail("SANDBOX_START_FAILED", "the sandbox ended before it was handed over");
    const stage = stages(status.handle.runtime);
    // I13, I16: no copy is claimed before its envd has accepted an identity of its own and its hooks have succeeded.
    await stage("identity", () => identities.sendAll(warm, status.handle, claim, origin));
    if (claim.egress.rules !== undefined) await stage("trust", () => trust.install(warm, status.handle, claim));
    const kept: IdempotentCreate | undefined = idempotent && { ...idempotent, answer: JSON.stringify(answerable) };
    await stage("claim", async () => registry.claim(sandboxID, claim, kept));
    undo.move(); // From here on the client owns it.
    const { parentSandboxID, timeoutSeconds } = claim;
    report("sandbox.created", warm, { timeoutSeconds, template: alias ?? templateID, ...(parentSandboxID === undefined ? {} : { parentSandboxID }) });
    return answerable;
  };
}
