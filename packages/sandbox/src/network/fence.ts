// One slot's egress policy, with the addresses that names resolved to in this sandbox: which of them are open, and which name they had.
import { type Found, MAX_OPEN_SECONDS } from "../dns/answer.ts";
import { type EgressPolicy, nameAllowed, nameRefusal, type ReadPolicy, readPolicy } from "../egress/policy.ts";
import type { NetworkSlot } from "./networks.ts";
import { forgetText, openText, slotText } from "./slot-rules.ts";

/** Addresses that names keep open per sandbox; past it the one that resolved longest ago is forgotten, and closed. */
export const MAX_ADDRESSES = 1024;
/** Where no name opens any, they are remembered for the network log alone. */
const MAX_REMEMBERED = 256;
/** An answer's addresses are open for its TTL, within this and MAX_OPEN_SECONDS, and a little longer: a client may connect in its last moment. */
export const MIN_OPEN_SECONDS = 60;
const GRACE_SECONDS = 30;
/** Opened for longer than this still: not opened anew, which would cost each answer a transaction. */
const ENOUGH_SECONDS = 45;

/** `name` is absent for an address that a node before this one opened and whose name is not known any more. */
type Known = { readonly name: string | undefined; readonly expiresAtMs: number; readonly open: boolean };

let nextID = 1;

export class Fence {
  /** No two fences of a process have the same: addresses are used again. */
  readonly id = nextID++;
  readonly slot: NetworkSlot;
  /** The opening of addresses that was asked for last. */
  opening: Promise<void> = Promise.resolve();
  readonly #token: string;
  #read: ReadPolicy;
  /** By address, the one resolved longest ago first. */
  readonly #known = new Map<string, Known>();

  constructor(token: string, slot: NetworkSlot, policy: EgressPolicy) {
    this.#token = token;
    this.slot = slot;
    this.#read = readPolicy(policy);
  }

  get policy(): EgressPolicy {
    return this.#read.policy;
  }

  get read(): ReadPolicy {
    return this.#read;
  }

  /** The name that this address had when this sandbox last asked. */
  nameOf(address: string): string | undefined {
    return this.#known.get(address)?.name;
  }

  refuses(name: string | undefined): string | undefined {
    return nameRefusal(this.#read, name);
  }

  /** All rules of the slot, whatever the kernel has of it: the addresses that are open, too. */
  text(nowMs: number): string {
    return slotText(this.#token, this.slot, this.#read) + this.#openKnown(nowMs, () => true);
  }

  /** The change from the policy before to this one. What was resolved before stays open where the new one names it. */
  replace(policy: EgressPolicy, nowMs: number): string {
    this.#read = readPolicy(policy);
    const lost: string[] = [];
    for (const [address, known] of this.#known) {
      if (known.name !== undefined && this.#opens(known.name)) continue;
      lost.push(address);
      this.#known.set(address, { ...known, open: false });
    }
    const forget = this.#read.names.length > 0 ? forgetText(this.#token, this.slot, lost) : "";
    return slotText(this.#token, this.slot, this.#read) + forget + this.#openKnown(nowMs, ({ open }) => !open);
  }

  /** What an answer changes in the kernel; empty when nothing. In force before the answer is given. */
  learn(name: string, found: readonly Found[], nowMs: number): string {
    const opens = this.#opens(name);
    const opened: { address: string; seconds: number; name: string }[] = [];
    for (const { address, ttlSeconds } of found) {
      const seconds = Math.min(Math.max(ttlSeconds, MIN_OPEN_SECONDS) + GRACE_SECONDS, MAX_OPEN_SECONDS + GRACE_SECONDS);
      const before = this.#known.get(address);
      // An address of two names keeps the one that opens it.
      if (!opens && before?.open === true) continue;
      this.#known.delete(address);
      const enough = before?.open === true && before.expiresAtMs >= nowMs + Math.min(seconds, ENOUGH_SECONDS) * 1000;
      if (opens && !enough) opened.push({ address, seconds, name });
      this.#known.set(address, { name, open: opens, expiresAtMs: opens && enough ? before.expiresAtMs : nowMs + seconds * 1000 });
    }
    return openText(this.#token, this.slot, opened) + this.#evict();
  }

  /** What the kernel holds of a slot whose node is gone. */
  recall(held: readonly { address: string; name: string | undefined; seconds: number }[], nowMs: number): void {
    for (const { address, name, seconds } of held.slice(0, MAX_ADDRESSES)) {
      this.#known.set(address, { name, open: true, expiresAtMs: nowMs + seconds * 1000 });
    }
  }

  /** After a failed change: nothing is known to be open, so that the next answer opens it again. */
  doubt(): void {
    for (const [address, known] of this.#known) this.#known.set(address, { ...known, open: false });
  }

  #opens(name: string): boolean {
    return this.#read.restricted && nameAllowed(this.#read, name);
  }

  #openKnown(nowMs: number, which: (known: Known) => boolean): string {
    const opened = [...this.#known].flatMap(([address, known]) => {
      const { name, expiresAtMs } = known;
      if (name === undefined || !this.#opens(name) || !which(known) || expiresAtMs <= nowMs) return [];
      this.#known.set(address, { ...known, open: true });
      return [{ address, name, seconds: Math.ceil((expiresAtMs - nowMs) / 1000) }];
    });
    return openText(this.#token, this.slot, opened);
  }

  #evict(): string {
    const evicted: string[] = [];
    const most = this.#read.names.length > 0 ? MAX_ADDRESSES : MAX_REMEMBERED;
    for (const [address, { open }] of this.#known) {
      if (this.#known.size <= most) break;
      this.#known.delete(address);
      if (open) evicted.push(address);
    }
    return forgetText(this.#token, this.slot, evicted);
  }
}
