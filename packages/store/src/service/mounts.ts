// The REST service's mounts and their rules: kinds are kept separate, bytes are offered once, and nothing stays half done.
import { statSync } from "node:fs";
import { totalmem } from "node:os";
import { asFailure } from "@svc/contract/failures.ts";
import type { Mounted } from "../client/session/segments.ts";
import type { Session } from "../client/session/session.ts";
import { type Fields, graceSeconds, MAX_GRACE_SECONDS, offsetOf, positive, Refused, segmentIDs, sharedName, textOf } from "./body.ts";

/** Allocations are multiples of this, as in Mooncake's store. */
const ALIGNMENT = 16 * 2 ** 20;

export type Kind = "shm" | "memory" | "own" | "reconfigured";
export type MountRules = {
  readonly session: Session;
  /** The protocol of a request that names none. */
  readonly protocol: string;
  /** The maximum size of one registration, by protocol. */
  readonly limits: ReadonlyMap<string, number>;
  /** The setting max_mr_size; 0 for none. */
  readonly maxRegistrationBytes: number;
};

type Mapped = { readonly object: string; readonly start: number; readonly end: number };

export class Mounts {
  readonly #rules: MountRules;
  /** The mapped ranges of shared memory objects by segment: no byte may be mounted twice. */
  readonly #mapped = new Map<string, Mapped>();
  #changing: Promise<unknown> = Promise.resolve();

  constructor(rules: MountRules) {
    this.#rules = rules;
  }

  /** Mounts the service's own memory. */
  async mountOwn(sizeBytes: number): Promise<void> {
    if (sizeBytes > 0) await this.#mountNew(sizeBytes, {}, "own");
  }

  async mountShared(fields: Fields): Promise<object> {
    const name = sharedName(fields["name"]);
    const sizeBytes = positive(fields["size"]);
    if (name === undefined || sizeBytes === undefined) throw new Refused(400, "Missing or invalid name or size");
    return { status: "success", segment_ids: idsOf(await this.#mountObject(name, sizeBytes, fields, "shm")) };
  }

  async mount(fields: Fields): Promise<object> {
    const asked = positive(fields["size"]);
    if (asked === undefined) throw new Refused(400, "Invalid size, must be a positive integer");
    if (asked > totalmem()) throw new Refused(400, `Invalid size, must be at most this machine's memory of ${totalmem()} bytes`);
    const sizeBytes = Math.ceil(asked / ALIGNMENT) * ALIGNMENT;
    return { status: "success", segment_ids: idsOf(await this.#mountNew(sizeBytes, fields, "memory")), allocated_size: sizeBytes };
  }

  /** Checks all ids before the first is unmounted. */
  async unmount(fields: Fields, kind: "shm" | "memory"): Promise<object> {
    const ids = segmentIDs(fields);
    const graceMs = graceSeconds(fields, MAX_GRACE_SECONDS) * 1000;
    const { segments } = this.#rules.session;
    const unknown = ids.filter((id) => segments.get(id) === undefined);
    if (unknown.length > 0) throw new Refused(404, "Segments that are not mounted here", { failed_segment_ids: unknown });
    const others = ids.filter((id) => segments.get(id)?.purpose !== kind);
    if (others.length > 0) {
      const path = kind === "shm" ? "/api/mount_shm" : "/api/mount";
      throw new Refused(400, `Segments that ${path} did not return; nothing was unmounted`, { failed_segment_ids: others });
    }
    await this.#unmountAll(ids, graceMs);
    return { status: "success" };
  }

  /** With decode, offers another process's memory and then unmounts what was offered this way before. With prefill, unmounts it. */
  async reconfigure(fields: Fields): Promise<object> {
    const { mode } = fields;
    if (mode !== "decode" && mode !== "prefill") throw new Refused(400, "Invalid mode. Use 'decode' or 'prefill'");
    const path = fields["path"];
    const name = sharedName(typeof path === "string" ? path.replace(/^\/dev\/shm\//, "") : path);
    const sizeBytes = positive(fields["size"]);
    if (mode === "decode" && (name === undefined || sizeBytes === undefined)) throw new Refused(400, "Missing path or size for decode mode");
    return this.#inOrder(async () => {
      const before = this.#ofKind("reconfigured");
      if (mode === "prefill") {
        await this.#unmountAll(before, 0);
        return { status: "success", mode, segment_ids: [] };
      }
      const wanted = rangeOf(name as string, offsetOf(fields), sizeBytes as number);
      if (
        isSame(
          before.flatMap((id) => this.#mapped.get(id) ?? []),
          wanted,
        )
      )
        return { status: "success", mode, segment_ids: before };
      const mounted = await this.#mountObject(name as string, sizeBytes as number, fields, "reconfigured");
      await this.#unmountAll(before, 0);
      return { status: "success", mode, segment_ids: idsOf(mounted) };
    });
  }

  forget(segmentID: string): void {
    this.#mapped.delete(segmentID);
  }

  async #mountNew(sizeBytes: number, fields: Fields, kind: Kind): Promise<Mounted[]> {
    return this.#rules.session.mountNew(sizeBytes, this.#optionsOf(fields, kind));
  }

  async #mountObject(name: string, sizeBytes: number, fields: Fields, kind: Kind): Promise<Mounted[]> {
    const offset = offsetOf(fields);
    const range = rangeOf(name, offset, sizeBytes);
    const options = this.#optionsOf(fields, kind);
    for (const [id, other] of this.#mapped)
      if (other.object === range.object && other.start < range.end && range.start < other.end)
        throw new Refused(409, `Bytes ${range.start} to ${range.end} of ${name} are mounted already`, { segment_ids: [id] });
    // The range is reserved from here on, so that of two requests for the same bytes one is refused.
    const reserved = `reserved ${range.object} ${range.start}`;
    this.#mapped.set(reserved, range);
    try {
      const mounted = await this.#rules.session.mountShared(name, offset, sizeBytes, options);
      let start = offset;
      for (const { segment } of mounted) {
        const end = start + Number(segment.sizeBytes);
        this.#mapped.set(segment.id, { ...range, start, end });
        start = end;
      }
      return mounted;
    } finally {
      this.#mapped.delete(reserved);
    }
  }

  #optionsOf(fields: Fields, purpose: Kind) {
    const protocol = textOf(fields, "protocol", this.#rules.protocol);
    const limit = this.#rules.limits.get(protocol);
    const { maxRegistrationBytes } = this.#rules;
    const most = limit === undefined ? undefined : maxRegistrationBytes > 0 ? Math.min(limit, maxRegistrationBytes) : limit;
    return { protocol, location: textOf(fields, "location", ""), purpose, ...(most === undefined ? {} : { maxRegistrationBytes: most }) };
  }

  async #unmountAll(ids: readonly string[], graceMs: number): Promise<void> {
    const failed: string[] = [];
    let status = 500;
    let reason = "";
    for (const id of ids) {
      try {
        await this.#rules.session.unmount(id, graceMs);
      } catch (error) {
        failed.push(id);
        const failure = asFailure(error);
        status = failure.row.http;
        reason = failure.message;
      }
    }
    if (failed.length > 0) throw new Refused(status, `Unmount failed for one or more segments: ${reason}`, { failed_segment_ids: failed });
  }

  #ofKind(kind: Kind): string[] {
    return this.#rules.session.segments.all().flatMap(({ segment, purpose, state }) => (purpose === kind && state.name !== "freeing" ? [segment.id] : []));
  }

  #inOrder<T>(act: () => Promise<T>): Promise<T> {
    const result = this.#changing.then(act);
    this.#changing = result.catch(() => undefined);
    return result;
  }
}

const idsOf = (mounted: readonly Mounted[]) => mounted.map(({ segment }) => segment.id);

/** Returns true if the pieces cover the range exactly. */
function isSame(pieces: readonly Mapped[], { object, start, end }: Mapped): boolean {
  return (
    pieces.length > 0 &&
    pieces.every((piece) => piece.object === object) &&
    Math.min(...pieces.map((piece) => piece.start)) === start &&
    Math.max(...pieces.map((piece) => piece.end)) === end
  );
}

/** @throws Refused where there is no such object, or it ends before the range does. */
function rangeOf(name: string, offset: number, sizeBytes: number): Mapped {
  const found = statSync(`/dev/shm/${name}`, { throwIfNoEntry: false });
  if (found === undefined || !found.isFile()) throw new Refused(400, `There is no shared memory object ${name} on this host; create it first`);
  const end = offset + sizeBytes;
  if (end > found.size) throw new Refused(400, `Shared memory object ${name} has ${found.size} bytes; the mount asks for bytes ${offset} to ${end}`);
  return { object: `${found.dev}:${found.ino}`, start: offset, end };
}
