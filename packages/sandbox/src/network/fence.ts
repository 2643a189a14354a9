// One slot's egress policy with the addresses that names resolved to in this sandbox: which of them are open, and their names.
import { type Found, MAX_OPEN_SECONDS } from "../dns/answer.ts";
import { type EgressPolicy, nameAllowed, nameRefusal, type ReadPolicy, readPolicy } from "../egress/policy.ts";
import type { NetworkSlot } from "./networks.ts";
import { Ruled } from "./ruled.ts";
import { forgetText, openText, slotText } from "./slot-rules.ts";

/** Bound on addresses that names keep open per sandbox; beyond it the one that resolved longest ago is forgotten and closed. */
export const MAX_ADDRESSES = 1024;
/** If no name opens any address, addresses are remembered for the network log alone. */
const MAX_REMEMBERED = 256;
/** An answer's addresses stay open for its TTL, within this and MAX_OPEN_SECONDS, plus a grace period: a client may connect in the last moment. */
export const MIN_OPEN_SECONDS = 60;
const GRACE_SECONDS = 30;
/** An address that stays open for longer than this is not renewed, which would cost each answer a transaction. */
const ENOUGH_SECONDS = 45;

/** `name` is absent for an address that an earlier node opened and whose name is unknown. */
type Known = { readonly name: string | undefined; readonly expiresAtMs: number; readonly open: boolean };

let nextID = 1;

export class Fence {
  /** Unique among all fences of a process, since addresses are reused. */
  readonly id = nextID++;
  readonly slot: NetworkSlot;
  /** The most recent transaction that opens addresses. */
  opening: Promise<void> = Promise.resolve();
  readonly ruled: Ruled;
  readonly #token: string;
  #read: ReadPolicy;
  #hadProxy: boolean;
  /** Keyed by address, in order of resolution, the oldest first. */
  readonly #known = new Map<string, Known>();

  constructor(token: string, slot: NetworkSlot, policy: EgressPolicy) {
    this.#token = token;
    this.slot = slot;
    this.ruled = new Ruled(token, slot);
    this.#read = readPolicy(policy);
    this.#hadProxy = policy.proxy !== undefined;
  }

  /** True once the slot has had rules by host or an egress proxy: the node's thread may have connections of it. */
  get usesThread(): boolean {
    return this.ruled.isUsed || this.#hadProxy;
  }

  get policy(): EgressPolicy {
    return this.#read.policy;
  }

  get read(): ReadPolicy {
    return this.#read;
  }

  /** Returns the name that resolved to this address most recently. */
  nameOf(address: string): string | undefined {
    return this.#known.get(address)?.name;
  }

  refuses(name: string | undefined): string | undefined {
    return nameRefusal(this.#read, name);
  }

  /** Returns all rules of the slot, including open addresses, regardless of the kernel's current state. */
  text(nowMs: number): string {
    return slotText(this.#token, this.slot, this.#read, false) + this.#openKnown(nowMs, () => true) + this.ruled.text(this.#read);
  }

  /** Returns the change from the previous policy to this one. Resolved addresses stay open if the new policy names them. */
  replace(policy: EgressPolicy, nowMs: number): string {
    const before = this.#read;
    this.#read = readPolicy(policy);
    this.#hadProxy ||= policy.proxy !== undefined;
    const lost: string[] = [];
    for (const [address, known] of this.#known) {
      if (known.name !== undefined && this.#opens(known.name)) continue;
      lost.push(address);
      this.#known.set(address, { ...known, open: false });
    }
    const forget = this.#read.names.length > 0 ? forgetText(this.#token, this.slot, lost) : "";
    const ruled = this.ruled.replace(before, this.#read);
    return slotText(this.#token, this.slot, this.#read, before.policy.proxy !== undefined) + forget + this.#openKnown(nowMs, ({ open }) => !open) + ruled;
  }

  /** Returns the kernel change for a DNS answer, or an empty text. It must be in force before the answer is sent. */
  learn(name: string, found: readonly Found[], nowMs: number): string {
    const opens = this.#opens(name);
    const opened: { address: string; seconds: number; name: string }[] = [];
    for (const { address, ttlSeconds } of found) {
      const seconds = Math.min(Math.max(ttlSeconds, MIN_OPEN_SECONDS) + GRACE_SECONDS, MAX_OPEN_SECONDS + GRACE_SECONDS);
      const before = this.#known.get(address);
      // An address with two names keeps the name that opens it.
      if (!opens && before?.open === true) continue;
      this.#known.delete(address);
      const enough = before?.open === true && before.expiresAtMs >= nowMs + Math.min(seconds, ENOUGH_SECONDS) * 1000;
      if (opens && !enough) opened.push({ address, seconds, name });
      this.#known.set(address, { name, open: opens, expiresAtMs: opens && enough ? before.expiresAtMs : nowMs + seconds * 1000 });
    }
    const ruled = this.ruled.learn(
      this.#read,
      name,
      found.map(({ address }) => address),
    );
    return openText(this.#token, this.slot, opened) + this.#evict() + ruled;
  }

  /** Restores the kernel's open addresses of a slot whose node has ended. */
  recall(opened: readonly { address: string; name: string | undefined; seconds: number }[], nowMs: number): void {
    for (const { address, name, seconds } of opened.slice(0, MAX_ADDRESSES)) {
      this.#known.set(address, { name, open: true, expiresAtMs: nowMs + seconds * 1000 });
    }
  }

  /** Marks all addresses as not open after a failed change, so that the next answer opens them again. */
  markUnverified(): void {
    for (const [address, known] of this.#known) this.#known.set(address, { ...known, open: false });
    this.ruled.markUnverified();
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
