// Reaches the owners of devices through the master, which delivers each command to the client with the stable id.
import { setTimeout as sleep } from "node:timers/promises";
import { Failure, type FailureName, fail } from "@svc/contract/failures.ts";
import type { ColdAnswer, ColdAnswers, ColdCommand, DeviceSpec } from "@svc/store/client/cold/commands.ts";
import type { Masters } from "../masters/masters.ts";
import type { Device, DeviceDefinition } from "./device.ts";

const FAILED = 2;
const SUCCEEDED = 3;
const ANSWER_MS = 45_000;
const POLL_MS = 50;
/** The interval of checks that the owner is still live. */
const LOOK_MS = 1000;
/** The number of owners that an error names. */
const SHOWN_NAMES = 10;

export type Owner = { readonly stableID: string; readonly epoch: number; readonly clientID: string; readonly segments: readonly string[] };
type Named<N extends ColdCommand["command"]> = Extract<ColdCommand, { command: N }>;

export class Owners {
  readonly #masters: Masters;

  constructor(masters: Masters) {
    this.#masters = masters;
  }

  /** Returns the latest live start with this stable id. @throws INVALID_REQUEST if there is none. */
  async live(stableID: string): Promise<Owner> {
    const owners = await this.#live();
    const there = [...new Set(owners.map((owner) => owner.stableID))].slice(0, SHOWN_NAMES).join(", ") || "none";
    return (
      latestOf(owners, stableID) ??
      fail("INVALID_REQUEST", `live runtime ${stableID} not found; live ones: ${there} (svc store clients lists their stable ids)`)
    );
  }

  /** @throws INVALID_REQUEST or STORE_CONFLICT if the owner is not live or cannot serve such a device. */
  async check(definition: DeviceDefinition, tenant: string): Promise<void> {
    const device = specOf({ definition }, tenant);
    await this.ask(await this.live(definition.stable_id), { command: "register", device, scans: true, isDryRun: true });
  }

  /** @throws the owner's failure; TIMED_OUT if it does not answer, STORE_CONFLICT if the owner restarted meanwhile. */
  async ask<N extends ColdCommand["command"]>(owner: Owner, command: Named<N>): Promise<ColdAnswers[N]> {
    const id = await this.#masters.command(owner.stableID, BigInt(owner.epoch), JSON.stringify(command));
    const endMs = performance.now() + ANSWER_MS;
    let lookMs = performance.now() + LOOK_MS;
    while (performance.now() < endMs) {
      const { status, message } = await this.#masters.task(id, "");
      if (status === FAILED) throw new Failure("STORE_REFUSED", `${owner.stableID} could not do it: ${message}`);
      if (status === SUCCEEDED) {
        const answer = JSON.parse(message) as ColdAnswer<N>;
        if (answer.ok) return answer.value;
        throw new Failure(answer.failure as FailureName, answer.message);
      }
      if (performance.now() > lookMs) {
        const now = await this.#find(owner.stableID);
        if (now?.epoch !== owner.epoch) fail("STORE_CONFLICT", `stale epoch ${owner.epoch}: ${owner.stableID} ended or started again meanwhile; try again`);
        lookMs = performance.now() + LOOK_MS;
      }
      await sleep(POLL_MS);
    }
    return fail(
      "TIMED_OUT",
      `${owner.stableID} did not answer within ${ANSWER_MS / 1000} s; the operation may still be carried out: check the device, then try again`,
    );
  }

  async #find(stableID: string): Promise<Owner | undefined> {
    return latestOf(await this.#live(), stableID);
  }

  async #live(): Promise<Owner[]> {
    const { members } = await this.#masters.members();
    const named = members.filter((member) => member.isHeard && member.epoch > 0n);
    return named.map(({ stableID, epoch, clientID, segments }) => ({ stableID, epoch: Number(epoch), clientID, segments }));
  }
}

const latestOf = (owners: readonly Owner[], stableID: string): Owner | undefined =>
  owners.filter((owner) => owner.stableID === stableID).sort((one, other) => other.epoch - one.epoch)[0];

export const specOf = ({ definition }: Pick<Device, "definition">, tenant: string): DeviceSpec => ({
  tenant,
  id: definition.device_id,
  target: definition.target,
  capacityBytes: definition.capacity_override_bytes,
});
