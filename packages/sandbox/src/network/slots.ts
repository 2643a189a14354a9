// The slots of a home: the indices in use, the pool of prepared slots, and the batches that make and remove slots.
import { randomInt } from "node:crypto";
import { fail } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Spawner } from "@svc/kit/spawn.ts";
import type { Found } from "../dns/answer.ts";
import type { Cidr } from "../egress/cidr.ts";
import { type EgressPolicy, needsThread, openEgress, sameEgress } from "../egress/policy.ts";
import { Batcher } from "./batch.ts";
import { Fence } from "./fence.ts";
import { createLinks, hasLinks, listLinks, removeLinks, restoreGuestLinks } from "./links.ts";
import { FIRST_INDEX, indexOf, LAST_INDEX, prefixOf, slotAt } from "./names.ts";
import type { NetworkSlot } from "./networks.ts";
import { rulesRemovalText } from "./ruled.ts";
import { Ruleset } from "./ruleset.ts";
import { slotRemovalText } from "./slot-rules.ts";
import { tunnelRemovalText } from "./tunnelled.ts";

const MAX_SLOTS_PER_CALL = 64;
const SLOT_COUNT = LAST_INDEX - FIRST_INDEX + 1;

export type SlotsOptions = {
  readonly token: string;
  readonly block: Cidr;
  readonly spawner: Spawner;
  readonly log: Log;
  readonly mtuBytes: number;
  readonly poolSize: number;
  /** Returns the rules that all slots share. */
  readonly homeText: () => string;
  readonly onCounted?: (counts: ReadonlyMap<string, number>) => void;
  /** Called before a policy with rules by host or an egress proxy is set: they can be applied once the promise resolves. */
  readonly onRules?: () => Promise<void>;
  /** Notified of each fence and each policy change; once the promise resolves, DNS and the thread for rules by host use the new policy. */
  readonly onPolicy?: (fence: Fence) => Promise<void>;
  readonly onGone?: (fence: Fence) => void;
};

export class Slots {
  readonly #options: SlotsOptions;
  readonly #ruleset: Ruleset;
  /** Keyed by index: slots that are attached, adopted, in the pool, or being made or removed. */
  readonly #taken = new Map<number, Fence>();
  /** Keyed by guest address, without the slots that are being removed. */
  readonly #byAddress = new Map<string, Fence>();
  readonly #detaching = new Map<number, Promise<void>>();
  /** Indices whose remains were found at the start; they are not assigned before the remains are removed. */
  readonly #stale = new Set<number>();
  readonly #pool: Fence[] = [];
  readonly #refills = new Set<Promise<void>>();
  readonly #creations: Batcher<Fence>;
  readonly #removals: Batcher<NetworkSlot>;
  // The first index is random: after a restart, peers of the last run's sandboxes may still send to the addresses used last.
  #lastIndex = randomInt(FIRST_INDEX, LAST_INDEX);
  #closing = false;

  constructor(options: SlotsOptions) {
    this.#options = options;
    const { token, spawner, log } = options;
    const wholeText = (): string => options.homeText() + [...this.#byAddress.values()].map((fence) => fence.text(performance.now())).join("");
    this.#ruleset = new Ruleset({ token, spawner, log, wholeText, ...(options.onCounted === undefined ? {} : { onCounted: options.onCounted }) });
    this.#creations = new Batcher(MAX_SLOTS_PER_CALL, (batch) => this.#create(batch));
    this.#removals = new Batcher(MAX_SLOTS_PER_CALL, (batch) => this.#remove(batch));
  }

  async open(): Promise<void> {
    await this.#ruleset.open();
    for (const index of await this.#remains()) this.#stale.add(index);
    this.#refill();
  }

  /** Returns the fence of the sandbox with this address; `fenceOn` finds it by interface. */
  fenceAt(address: string): Fence | undefined {
    return this.#byAddress.get(address);
  }

  fenceOn(veth: string): Fence | undefined {
    return this.#taken.get(indexOf(this.#options.token, veth) ?? -1);
  }

  /** Returns every fence whose address is in use. */
  fences(): Iterable<Fence> {
    return this.#byAddress.values();
  }

  renewHome(): Promise<void> {
    return this.#ruleset.renew(this.#options.homeText());
  }

  async attach(policy: EgressPolicy): Promise<NetworkSlot> {
    const fence = this.#pool.shift() ?? (await this.#make());
    const { slot } = fence;
    this.#refill();
    if (!sameEgress(policy, fence.policy)) {
      try {
        await this.setPolicy(slot, policy);
      } catch (error) {
        await this.detach(slot).catch(() => this.#stale.add(slot.index));
        throw error;
      }
    }
    return slot;
  }

  async setPolicy(slot: NetworkSlot, policy: EgressPolicy): Promise<void> {
    const fence = this.#byAddress.get(slot.guestAddress) ?? fail("INTERNAL", `${slot.netns} is not attached: its policy cannot be changed`);
    const before = fence.policy;
    if (needsThread(policy)) await this.#options.onRules?.();
    try {
      // Changes take effect in the order of these calls: DNS applies the new policy to every answer from now on.
      const changing = this.#ruleset.change(fence.replace(policy, performance.now()));
      await Promise.all([changing, this.#options.onPolicy?.(fence)]);
    } catch (error) {
      if (fence.policy === policy) {
        fence.replace(before, performance.now());
        await this.#options.onPolicy?.(fence);
      }
      fence.markUnverified();
      throw error;
    }
  }

  /** Resolves when all found addresses that the fence opens for this name are open. */
  async resolved(fence: Fence, name: string, found: readonly Found[]): Promise<void> {
    if (this.#byAddress.get(fence.slot.guestAddress) !== fence) return; // detached during the DNS query
    const text = fence.learn(name, found, performance.now());
    // An answer that changes nothing still waits for the previous one, which may be opening the same address.
    const opening = text === "" ? fence.opening : this.#ruleset.change(text);
    fence.opening = opening;
    try {
      await opening;
    } catch (error) {
      if (fence.opening === opening) fence.opening = Promise.resolve();
      fence.markUnverified();
      throw error;
    }
  }

  /** Two calls for one slot share one removal, since a later one must not affect the index's next owner. */
  detach(slot: NetworkSlot): Promise<void> {
    const detaching = this.#detaching.get(slot.index) ?? this.#detach(slot).finally(() => this.#detaching.delete(slot.index));
    this.#detaching.set(slot.index, detaching);
    return detaching;
  }

  async adopt(slot: NetworkSlot, policy: EgressPolicy): Promise<void> {
    const { token, block } = this.#options;
    const expected = slotAt(token, block, slot.index);
    if (expected.netns !== slot.netns || expected.guestAddress !== slot.guestAddress) {
      fail("INTERNAL", `${slot.netns} with ${slot.guestAddress} does not belong to this home's slots (${expected.netns} would have ${expected.guestAddress})`);
    }
    if (!hasLinks(slot)) fail("INTERNAL", `the network namespace ${slot.netns} or its interface is gone; the sandbox cannot be reached any more`);
    if (this.#taken.has(slot.index)) fail("INTERNAL", `${slot.netns} is already in use`);
    if (needsThread(policy)) await this.#options.onRules?.();
    const fence = this.#take(slot, policy);
    try {
      // Addresses opened by names stay open, since programs inside keep addresses and connections across the node's restart.
      if (fence.read.names.length > 0) fence.recall(await this.#ruleset.openAddresses(slot), performance.now());
      if (policy.rules !== undefined) fence.ruled.recall(await this.#ruleset.redirected(slot));
      const removal = [...tunnelRemovalText(token, slot), rulesRemovalText(token, slot)].join("\n");
      await this.#ruleset.change(removal + fence.text(performance.now()));
    } catch (error) {
      this.#drop(fence);
      throw error;
    }
    this.#stale.delete(slot.index);
  }

  async orphans(): Promise<string[]> {
    const indices = (await this.#remains()).filter((index) => !this.#taken.has(index));
    return indices.map((index) => `${prefixOf(this.#options.token)}${index}`);
  }

  async removeOrphan(netns: string): Promise<void> {
    const { token, block } = this.#options;
    const index = indexOf(token, netns);
    if (index === undefined) fail("INVALID_REQUEST", `${netns} is not a network of this home; those are ${prefixOf(token)}<number>`);
    if (this.#taken.has(index)) fail("INVALID_REQUEST", `${netns} is in use: detach it instead`);
    await this.detach(slotAt(token, block, index));
  }

  restoreGuestSide(slot: NetworkSlot): Promise<void> {
    return restoreGuestLinks(this.#options.spawner, slot);
  }

  /** Ends the pool; attached slots stay unless `everything` is set. The table is removed with the last slot. */
  async close(everything: boolean): Promise<{ empty: boolean }> {
    this.#closing = true;
    await Promise.all(this.#refills);
    await this.#creations.idle();
    const ending = (everything ? [...this.#taken.values()] : this.#pool).map(({ slot }) => this.detach(slot));
    if (everything) ending.push(...(await this.orphans()).map((netns) => this.removeOrphan(netns)));
    for (const end of await Promise.allSettled(ending)) {
      if (end.status === "rejected")
        this.#options.log.error({ err: end.reason }, "a network slot could not be removed; the next start of the node tries again");
    }
    await this.#removals.idle();
    await this.#ruleset.close();
    const empty = listLinks(prefixOf(this.#options.token)).length === 0;
    if (empty) await this.#ruleset.remove();
    return { empty };
  }

  async #make(): Promise<Fence> {
    if (this.#closing) fail("SHUTTING_DOWN", "the networks are being closed");
    const taken = this.#take(slotAt(this.#options.token, this.#options.block, this.#freeIndex()), openEgress);
    try {
      await this.#creations.add(taken);
      return taken;
    } catch (error) {
      await this.detach(taken.slot).catch((cause: unknown) => {
        this.#stale.add(taken.slot.index);
        this.#options.log.error({ err: cause }, `${taken.slot.netns} was created in part and cannot be removed`);
      });
      throw error;
    }
  }

  #take(slot: NetworkSlot, policy: EgressPolicy): Fence {
    const fence = new Fence(this.#options.token, slot, policy);
    this.#taken.set(slot.index, fence);
    this.#byAddress.set(slot.guestAddress, fence);
    void this.#options.onPolicy?.(fence);
    return fence;
  }

  #drop({ slot }: Fence): void {
    this.#taken.delete(slot.index);
    this.#closeAddress(slot.guestAddress);
  }

  /** Ends DNS for the address immediately. */
  #closeAddress(address: string): void {
    const fence = this.#byAddress.get(address);
    if (fence === undefined) return;
    this.#byAddress.delete(address);
    this.#options.onGone?.(fence);
  }

  /** Assigns indices round-robin: an address is reused as late as possible, when no peer still sends to its last owner. */
  #freeIndex(): number {
    for (let step = 1; step <= SLOT_COUNT; step++) {
      const index = FIRST_INDEX + ((this.#lastIndex - FIRST_INDEX + step) % SLOT_COUNT);
      if (this.#taken.has(index) || this.#stale.has(index)) continue;
      this.#lastIndex = index;
      return index;
    }
    return fail("CAPACITY_EXHAUSTED", `all ${SLOT_COUNT} network slots of this node are in use; delete sandboxes or start another node`);
  }

  /** Refills the pool only when half of it is used, since several slots need hardly more program starts than one. */
  #refill(): void {
    const { poolSize } = this.#options;
    if (poolSize - this.#pool.length - this.#refills.size < poolSize / 2) return;
    while (!this.#closing && this.#pool.length + this.#refills.size < poolSize) {
      const refill = this.#make().then(
        (taken) => void this.#pool.push(taken),
        // There is no retry here: the next attach finds the pool short, makes its own slot and reports the failure.
        (error: unknown) => this.#options.log.warn({ err: error }, "a network slot for the pool could not be created"),
      );
      this.#refills.add(refill);
      void refill.finally(() => this.#refills.delete(refill));
    }
  }

  async #create(batch: readonly Fence[]): Promise<void> {
    const slots = batch.map(({ slot }) => slot);
    // A slot whose batch failed is retried alone, so the batch's partial result must be removed first.
    const halves = slots.filter((slot) => hasLinks(slot, "any"));
    if (halves.length > 0) await this.#remove(halves);
    await createLinks(this.#options.spawner, slots, this.#options.mtuBytes);
    await this.#ruleset.change(batch.map((fence) => fence.text(performance.now())).join(""));
  }

  async #detach(slot: NetworkSlot): Promise<void> {
    // The index stays in use until the slot is removed completely.
    this.#closeAddress(slot.guestAddress);
    await this.#removals.add(slot);
    this.#taken.delete(slot.index);
    this.#stale.delete(slot.index);
  }

  /** Removes rules and links concurrently: a veth without rules is closed, and rules without a veth match nothing. */
  async #remove(batch: readonly NetworkSlot[]): Promise<void> {
    const { token, spawner } = this.#options;
    const names = batch.map(({ netns }) => netns);
    await Promise.all([
      this.#ruleset.change(batch.map((slot) => slotRemovalText(token, slot)).join("")),
      removeLinks(spawner, names, 0x7300_0000 + Number.parseInt(token, 16)),
    ]);
  }

  /** Returns the indices of everything that exists for this home: namespaces, veths, and rules without either. */
  async #remains(): Promise<number[]> {
    const { token } = this.#options;
    const named = listLinks(prefixOf(token)).flatMap((name) => indexOf(token, name) ?? []);
    return [...new Set([...named, ...(await this.#ruleset.slotIndices())])];
  }
}
