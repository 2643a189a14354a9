// The fast path for one small object, blocking the thread: it builds nothing
// that one object does not need. Unusual cases fall back to the general path.
import { Failure } from "@svc/contract/failures.ts";
import type { Memory } from "@svc/transfer/memory.ts";
import { codes } from "../rpc/codes.ts";
import { giveBack, isLost } from "./extents.ts";
import { nativeClient } from "./native.ts";
import type { BytesParts } from "./parts.ts";
import type { Place } from "./places.ts";
import type { PutPolicy } from "./put-policy.ts";

/** A holder that was reached before answers within this time; otherwise the general path looks for another. */
const MOVE_MS = 1000;

export class FastPath {
  readonly #parts: BytesParts;
  readonly #words = new BigUint64Array(3);

  constructor(parts: BytesParts) {
    this.#parts = parts;
  }

  /** Reads into one piece of registered memory, from a holder that was reached before. Returns undefined where the general path must decide. */
  read(key: string, into: Memory): number | undefined {
    const { memory, getParts, metrics } = this.#parts;
    const part = memory.partOf(into);
    if (part === undefined) return undefined;
    const known = getParts.places.find(key);
    const place = known ?? this.#ask(key);
    if (place === undefined || part.sizeBytes < place.sizeBytes) return undefined;
    if (!this.#move("READ", place.endpoint, part.address, place.address, place.sizeBytes)) {
      getParts.places.forgetHolder(place.endpoint);
      return undefined;
    }
    if (performance.now() >= place.untilMs || nativeClient().checksum(this.#words, 0, 1) !== place.checksum) {
      getParts.places.forget(key);
      return undefined;
    }
    metrics.read(place.sizeBytes, known === undefined ? "readAsked" : "readKnown");
    return place.sizeBytes;
  }

  /**
   * Stores one piece of registered memory in memory that was leased ahead. Returns undefined
   * where there is none or the write failed; "unsure" where the commit had no answer.
   */
  put(key: string, value: Memory, policy: PutPolicy): boolean | "unsure" | undefined {
    const { memory, runner, putParts, metrics } = this.#parts;
    const part = memory.partOf(value);
    if (part === undefined || key === "" || putParts.files.shared !== undefined) return undefined;
    const extent = putParts.extents.takeOne(part.sizeBytes, policy);
    const range = extent?.ranges[0];
    if (extent === undefined || range === undefined) return undefined;
    if (extent.ranges.length > 1 || putParts.avoided.has(range.endpoint) || runner.handleOf(range.endpoint) === undefined) {
      putParts.extents.putBack(part.sizeBytes, policy, extent);
      return undefined;
    }
    if (!this.#move("WRITE", range.endpoint, part.address, range.address, part.sizeBytes)) {
      runner.runSync(giveBack(putParts.clientID, [extent], true));
      return undefined;
    }
    const checksum = nativeClient().checksum(this.#words, 0, 1);
    const { clientID, fingerprint, tenant } = putParts;
    try {
      const [answer] = runner.callSync("CommitPuts", [clientID, [{ extent: extent.id, key, checksum }], policy.config, fingerprint, false, tenant]);
      if (answer?.ok === true) {
        putParts.places.forget(key);
        metrics.storedOne(part.sizeBytes);
        return true;
      }
      if (answer === undefined || isLost(answer.code)) return undefined;
      putParts.extents.putBack(part.sizeBytes, policy, extent);
      if (answer.code !== codes.OBJECT_ALREADY_EXISTS) return undefined;
      metrics.count("existed");
      return false;
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      return "unsure";
    }
  }

  /** Asks the master; returns undefined except for an object with a checksum on a reachable holder. */
  #ask(key: string): Place | undefined {
    const { runner, getParts } = this.#parts;
    const askedMs = performance.now();
    try {
      const [answer] = runner.callSync("ReadObjects", [[key], getParts.fingerprint, getParts.tenant]);
      if (answer?.ok !== true || answer.value.checksum === undefined) return undefined;
      // The fast path requires exactly one location in memory: of several, another one may be nearer.
      const [place, other] = answer.value.replicas.filter((replica) => replica.place.type !== "disk").map((replica) => replica.place);
      if (other !== undefined || place?.type !== "memory" || getParts.avoided.has(place.buffer.endpoint)) return undefined;
      const { endpoint, address, sizeBytes } = place.buffer;
      return getParts.places.learn(
        key,
        { endpoint, address, sizeBytes: Number(sizeBytes), checksum: answer.value.checksum },
        askedMs,
        Number(answer.value.leaseMs),
      );
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      return undefined;
    }
  }

  #move(opcode: "READ" | "WRITE", endpoint: string, local: bigint, remote: bigint, sizeBytes: number): boolean {
    const { engine, runner } = this.#parts;
    const handle = runner.handleOf(endpoint);
    if (handle === undefined) return false;
    const words = this.#words;
    words[0] = local;
    words[1] = remote;
    words[2] = BigInt(sizeBytes);
    try {
      engine.transferSync(opcode, handle, words, MOVE_MS);
      return true;
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      return false;
    }
  }
}
