// The names that a sandbox resolved with their addresses, and which addresses lead to hosts with rules: HTTPS to those goes through the node.
import { hasRules } from "../egress/host-rules.ts";
import type { ReadPolicy } from "../egress/policy.ts";
import { tableOf } from "./names.ts";
import type { NetworkSlot } from "./networks.ts";

const MAX_NAMES = 256;
const MAX_ADDRESSES_PER_NAME = 16;
/** Beyond it the address that was resolved longest ago is no longer redirected. */
const MAX_REDIRECTED = 2048;
const SET_SIZE = 4096;

/** The map of interfaces whose sandboxes have rules, and the chain that leads to the thread. */
export const RULES_MAP = "rules";
export const TO_INTERCEPT = "to_intercept";
export const ruledSet = ({ index }: NetworkSlot): string => `ruled_${index}`;
const chainOf = ({ index }: NetworkSlot): string => `rules_${index}`;

export class Ruled {
  readonly #token: string;
  readonly #slot: NetworkSlot;
  /** In order of resolution, the oldest first. */
  readonly #names = new Map<string, readonly string[]>();
  readonly #redirected = new Set<string>();
  #isUsed = false;

  constructor(token: string, slot: NetworkSlot) {
    this.#token = token;
    this.#slot = slot;
  }

  /** True once the slot has had rules: the thread may have connections of it. */
  get isUsed(): boolean {
    return this.#isUsed;
  }

  /** Returns the addresses that a name resolved to, the latest first. */
  addressesOf(name: string): readonly string[] {
    return this.#names.get(name) ?? [];
  }

  /** Returns the kernel change for an answer. */
  learn(read: ReadPolicy, name: string, found: readonly string[]): string {
    const addresses = [...new Set([...found, ...this.addressesOf(name)])].slice(0, MAX_ADDRESSES_PER_NAME);
    this.#names.delete(name);
    if (addresses.length > 0) this.#names.set(name, addresses);
    for (const oldest of this.#names.keys()) {
      if (this.#names.size <= MAX_NAMES) break;
      this.#names.delete(oldest);
    }
    return hasRules(read.policy.rules, name) ? this.#redirect(found) : "";
  }

  /** Restores the addresses that an earlier node redirected. */
  recall(addresses: readonly string[]): void {
    for (const address of addresses) this.#redirected.add(address);
  }

  /** Returns everything of the slot that rules need, whatever the kernel has; an empty text without rules. */
  text(read: ReadPolicy): string {
    this.#isUsed ||= hasAny(read);
    return hasAny(read) ? rulesText(this.#token, this.#slot) + elementsText(this.#token, this.#slot, "add", [...this.#redirected]) : "";
  }

  /** Returns the change from the previous policy to this one. */
  replace(before: ReadPolicy, read: ReadPolicy): string {
    if (!hasAny(read)) {
      this.#redirected.clear();
      return hasAny(before) ? rulesRemovalText(this.#token, this.#slot) : "";
    }
    this.#isUsed = true;
    const wanted = [...this.#names].flatMap(([name, addresses]) => (hasRules(read.policy.rules, name) ? addresses : []));
    const lost = [...this.#redirected].filter((address) => !wanted.includes(address));
    for (const address of lost) this.#redirected.delete(address);
    return rulesText(this.#token, this.#slot) + forgotten(this.#token, this.#slot, lost) + this.#redirect(wanted);
  }

  /** After a failed change nothing is known of the kernel's set, so each answer adds its addresses again. */
  markUnverified(): void {
    this.#redirected.clear();
  }

  #redirect(addresses: readonly string[]): string {
    const added = addresses.filter((address) => !this.#redirected.has(address));
    for (const address of added) this.#redirected.add(address);
    const evicted: string[] = [];
    for (const oldest of this.#redirected) {
      if (this.#redirected.size <= MAX_REDIRECTED) break;
      this.#redirected.delete(oldest);
      evicted.push(oldest);
    }
    return forgotten(this.#token, this.#slot, evicted) + elementsText(this.#token, this.#slot, "add", added);
  }
}

const hasAny = ({ policy }: ReadPolicy): boolean => policy.rules !== undefined && Object.keys(policy.rules).length > 0;

function rulesText(token: string, slot: NetworkSlot): string {
  const table = `inet ${tableOf(token)}`;
  return [
    `add chain ${table} ${chainOf(slot)}`,
    `add set ${table} ${ruledSet(slot)} { type ipv4_addr; size ${SET_SIZE}; }`,
    `flush chain ${table} ${chainOf(slot)}`,
    `add rule ${table} ${chainOf(slot)} ip daddr @${ruledSet(slot)} goto ${TO_INTERCEPT}`,
    `add element ${table} ${RULES_MAP} { "${slot.veth}" : jump ${chainOf(slot)} }\n`,
  ].join("\n");
}

/** Removes a slot's redirection; each part is added first, since deleting an absent one would fail the whole transaction. */
export function rulesRemovalText(token: string, slot: NetworkSlot): string {
  const table = `inet ${tableOf(token)}`;
  return [
    `add chain ${table} ${chainOf(slot)}`,
    `add element ${table} ${RULES_MAP} { "${slot.veth}" : jump ${chainOf(slot)} }`,
    `delete element ${table} ${RULES_MAP} { "${slot.veth}" : jump ${chainOf(slot)} }`,
    `flush chain ${table} ${chainOf(slot)}`,
    `delete chain ${table} ${chainOf(slot)}`,
    `add set ${table} ${ruledSet(slot)} { type ipv4_addr; size ${SET_SIZE}; }`,
    `delete set ${table} ${ruledSet(slot)}\n`,
  ].join("\n");
}

function elementsText(token: string, slot: NetworkSlot, verb: "add" | "delete", addresses: readonly string[]): string {
  return addresses.length === 0 ? "" : `${verb} element inet ${tableOf(token)} ${ruledSet(slot)} { ${addresses.join(", ")} }\n`;
}

/** An element is added before it is deleted, since it may be absent. */
const forgotten = (token: string, slot: NetworkSlot, addresses: readonly string[]): string =>
  elementsText(token, slot, "add", addresses) + elementsText(token, slot, "delete", addresses);
