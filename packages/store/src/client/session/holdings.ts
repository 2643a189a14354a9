// Remembers the objects in this client's memory as the master reports them, within a bound, and restores them to a master that lost its log.
import { setImmediate as nextTick, setTimeout as sleep } from "node:timers/promises";
import { Failure } from "@svc/contract/failures.ts";
import { decodeBody, encodeBody } from "../../rpc/body.ts";
import type { RpcClient } from "../../rpc/client.ts";
import { type Holding, holding } from "../../rpc/shapes.ts";
import { nativeClient } from "../native.ts";
import { refusal } from "./refusal.ts";
import type { Segments } from "./segments.ts";

//  the master's changes ──> remembered, under the master's lineage
//  another lineage answers ──> bytes verified, objects restored in the order of their addresses ──> its changes, from the start

/** The interval of requests for changes, and the shorter one while more are pending. */
const FOLLOW_MS = 250;
const FOLLOW_ON_MS = 20;
/** The number of changes per call. */
const MAX_CHANGES = 1000;
/** The bytes that are verified before other work may run. */
const SLICE_BYTES = 16 << 20;
const MAX_BATCH = 500;
/** The approximate size of an entry in addition to its own characters. */
const ENTRY_BYTES = 100;
/** The failures of masters without these calls (Mooncake, earlier releases), and of masters that restrict them for a tenant's key. */
const UNKNOWN: readonly string[] = ["INVALID_REQUEST", "ACCESS_DENIED"];

export type HoldingsOptions = { readonly clientID: string; readonly segments: Segments; readonly maxBytes: number };

export class Holdings {
  readonly #options: HoldingsOptions;
  #lineage = 0n;
  /** Encoded objects by address. While the changes are read from the start, `#earlier` has those that were not reported again yet. */
  #entries = new Map<number, string>();
  #earlier = new Map<number, string>();
  #bytes = 0;
  #fromStart = true;
  #isBusy = false;
  #isOff = false;

  constructor(options: HoldingsOptions) {
    this.#options = options;
    this.#isOff = options.maxBytes === 0;
  }

  get count(): number {
    return this.#entries.size + this.#earlier.size;
  }

  /** Follows the master's changes until `signal`; `onLost` is called when another lineage answers. */
  async run(signal: AbortSignal, master: { connection(): Promise<RpcClient | undefined>; onLost(): void }): Promise<void> {
    let delayMs = FOLLOW_MS;
    while (!this.#isOff) {
      await sleep(delayMs, undefined, { signal, ref: false }).catch(() => undefined);
      if (signal.aborted) return;
      const found = await master
        .connection()
        .then((rpc) => (rpc === undefined ? "idle" : this.#follow(rpc)))
        .catch(() => "idle");
      delayMs = found === "more" ? FOLLOW_ON_MS : FOLLOW_MS;
      if (found === "lost") master.onLost();
    }
  }

  /** Takes pending changes. Returns whether there are more, or whether the master has lost its log. */
  async #follow(rpc: RpcClient): Promise<"idle" | "more" | "lost"> {
    if (this.#isOff || this.#isBusy || this.#options.segments.known().length === 0) return "idle";
    const fromStart = this.#fromStart;
    // A lost answer loses its changes, so the next request starts over unless this one succeeds.
    this.#fromStart = true;
    const answer = await rpc.call("TakeChanges", this.#options.clientID, fromStart, MAX_CHANGES).catch((error) => this.#giveUp(error));
    if (answer === undefined || !answer.ok || this.#isBusy) return "idle";
    const { lineage, begins, isWhole, more, gone, held } = answer.value;
    if (this.#lineage !== 0n && lineage !== this.#lineage) return "lost";
    this.#lineage = lineage;
    this.#fromStart = false;
    if (begins) {
      for (const [address, text] of this.#entries) this.#earlier.set(address, text);
      this.#entries = new Map();
    }
    for (const address of gone) this.#drop(Number(address));
    for (const each of held) this.#keep(each);
    if (isWhole) for (const address of [...this.#earlier.keys()]) this.#drop(address);
    return more ? "more" : "idle";
  }

  /** Mounts this client's segments at a master that lost its log and restores their objects; does nothing at any other master. */
  async restoreTo(rpc: RpcClient): Promise<number> {
    const { clientID, segments } = this.#options;
    const mounted = segments.known();
    if (this.#isOff || this.#lineage === 0n || mounted.length === 0) return 0;
    this.#isBusy = true;
    try {
      const begun = await rpc.call("BeginRestore", clientID, this.#lineage, mounted).catch((error) => this.#giveUp(error));
      if (begun === undefined) return 0;
      if (!begun.ok) throw refusal(begun.code, "restoring this client's objects");
      const restored = begun.value.isWanted ? await this.#restore(rpc) : 0;
      this.#lineage = begun.value.lineage;
      this.#fromStart = true;
      return restored;
    } finally {
      this.#isBusy = false;
    }
  }

  async #restore(rpc: RpcClient): Promise<number> {
    const addresses = [...this.#entries.keys(), ...this.#earlier.keys()].sort((one, other) => one - other);
    let restored = 0;
    let batch: Holding[] = [];
    let bytes = 0;
    const send = async (isLast: boolean) => {
      const outcomes = await rpc.call("RestoreObjects", this.#options.clientID, batch, isLast);
      restored += outcomes.filter(({ ok }) => ok).length;
      batch = [];
      bytes = 0;
    };
    for (const address of addresses) {
      const entry = decode(this.#entries.get(address) ?? this.#earlier.get(address));
      if (entry === undefined || !this.#isWhole(entry)) continue;
      batch.push(entry);
      bytes += Number(entry.sizeBytes);
      if (batch.length < MAX_BATCH && bytes < SLICE_BYTES) continue;
      await send(false);
      await nextTick();
    }
    await send(true);
    return restored;
  }

  /** Reports whether the bytes are still those that were stored: they may have been overwritten since the master's last report. */
  #isWhole({ address, sizeBytes, checksum }: Holding): boolean {
    const release = this.#options.segments.hold(address, Number(sizeBytes));
    if (release === undefined) return false;
    try {
      return nativeClient().checksum(BigUint64Array.of(address, 0n, sizeBytes), 0, 1) === checksum;
    } finally {
      release();
    }
  }

  #keep(entry: Holding): void {
    const address = Number(entry.address);
    this.#drop(address);
    const text = encodeBody(holding, 0, entry).toString("latin1");
    if (this.#bytes + text.length + ENTRY_BYTES > this.#options.maxBytes) return;
    this.#entries.set(address, text);
    this.#bytes += text.length + ENTRY_BYTES;
  }

  #drop(address: number): void {
    for (const entries of [this.#entries, this.#earlier]) {
      const text = entries.get(address);
      if (text === undefined) continue;
      entries.delete(address);
      this.#bytes -= text.length + ENTRY_BYTES;
    }
  }

  #giveUp(error: unknown): undefined {
    if (!(error instanceof Failure) || !UNKNOWN.includes(error.name)) throw error;
    this.#isOff = true;
    return undefined;
  }
}

const decode = (text: string | undefined): Holding | undefined => (text === undefined ? undefined : decodeBody(holding, 0, Buffer.from(text, "latin1")));
