// Maps stable ids to clients and their starts: clients announce them whenever the master does not know them.
import { codes } from "../rpc/codes.ts";
import type { Membership } from "../rpc/shapes.ts";
import { type ClientRow, clientRows, type NativeMaster, segmentRows } from "./native.ts";

const MAX_NAME_BYTES = 1024;
/** Names of clients that are gone are forgotten once there are this many spare ones. */
const SPARE = 1024;

type Name = { readonly stableID: string; readonly epoch: bigint };
export type Member = Membership["members"][number];

export class Members {
  readonly #native: NativeMaster;
  readonly #names = new Map<string, Name>();
  readonly #left = new Set<number>();

  constructor(native: NativeMaster) {
    this.#native = native;
  }

  /** Registers a name; an earlier start never displaces a later one. */
  announce(clientID: string, stableID: string, epoch: bigint): number {
    if (stableID === "" || stableID.length > MAX_NAME_BYTES || epoch === 0n) return codes.INVALID_PARAMS;
    const rows = clientRows(this.#native);
    const heard = new Set(rows.filter(isHeard).map(({ id }) => id));
    for (const [other, name] of this.#names)
      if (other !== clientID && name.stableID === stableID && name.epoch >= epoch && heard.has(other)) return codes.ILLEGAL_CLIENT;
    this.#names.set(clientID, { stableID, epoch });
    // The memory of its earlier start is gone: readers must not be sent there, and
    // no disk file may be dropped because that memory seems to have the object too.
    for (const [other, name] of this.#names) if (other !== clientID && name.stableID === stableID && heard.has(other)) this.#native.suspect(other);
    if (this.#names.size > 2 * rows.length + SPARE) this.#forget(new Set(rows.map(({ id }) => id)));
    return codes.OK;
  }

  /** A client ends in order: its silence is not reported if it has no segments; with a NOF segment it counts as silent at once, for the next mount. */
  leave(clientID: string): void {
    const row = clientRows(this.#native).find(({ id }) => id === clientID);
    if (row === undefined) return;
    if (row.segments === 0) this.#left.add(row.number);
    else this.#native.suspect(clientID);
  }

  /** Returns true if a silent client had announced its end. With `isLost` the entry is dropped, since its number may be reused. */
  hasLeft(number: number, isLost: boolean): boolean {
    return isLost ? this.#left.delete(number) : this.#left.has(number);
  }

  all(): Member[] {
    const segments = new Map<string, Set<string>>();
    for (const { clientID, name } of segmentRows(this.#native)) segments.set(clientID, (segments.get(clientID) ?? new Set()).add(name));
    return clientRows(this.#native).map((row) => ({
      clientID: row.id,
      stableID: this.#names.get(row.id)?.stableID ?? row.id,
      epoch: this.#names.get(row.id)?.epoch ?? 0n,
      isHeard: isHeard(row),
      segments: [...(segments.get(row.id) ?? [])],
    }));
  }

  /** Returns the latest live start of that name; with an epoch, that start or none. */
  find(stableID: string, epoch: bigint): Member | "stale" | undefined {
    const found = this.all().filter((member) => member.isHeard && member.stableID === stableID);
    const latest = found.reduce<Member | undefined>((best, each) => (best === undefined || each.epoch > best.epoch ? each : best), undefined);
    return latest !== undefined && epoch !== 0n && latest.epoch !== epoch ? "stale" : latest;
  }

  #forget(known: ReadonlySet<string>): void {
    for (const clientID of this.#names.keys()) if (!known.has(clientID)) this.#names.delete(clientID);
  }
}

const isHeard = ({ known, silent }: ClientRow) => known && !silent;
