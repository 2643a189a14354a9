// Calls that only Mooncake's clients make: about NOF segments, and those that this master refuses.
import type { Log } from "@svc/kit/log.ts";
import { codes } from "../rpc/codes.ts";
import type { ArgsOf, OperationName, ResultOf } from "../rpc/operations.ts";
import type { Segment } from "../rpc/shapes.ts";
import { type NativeMaster, segmentRows } from "./native.ts";
import { done, wrong } from "./outcome.ts";

type NofSegment = Pick<Segment, "id" | "name" | "base" | "sizeBytes" | "endpoint">;

type Segments = "MountNoFSegment" | "ReMountNoFSegment" | "UnmountNoFSegment" | "GetAllNoFSegments" | "GetNoFSegmentsByName";
type Refused = "RegisterPrefetchTask" | "DynamicReplicaCopyStart" | "DynamicReplicaCopyEnd" | "DynamicReplicaCopyRevoke";
type Served = { readonly [N in Segments | Refused | "EvictDiskReplicaIfCurrent"]: (...args: ArgsOf<N>) => ResultOf<N> };

const asSegment = (segment: NofSegment): Segment => ({ ...segment, protocol: "nvmeof", hostID: "" });

export function mooncakeHandlers(native: NativeMaster, log: Log): Served {
  const logged = new Set<OperationName>();
  const nofRows = () => segmentRows(native).filter((row) => row.nof);

  /** Answers like a Mooncake master with the feature off; each operation is logged once. */
  function notOffered(name: OperationName): { ok: false; code: number } {
    if (!logged.has(name)) {
      logged.add(name);
      log.warn({ call: name }, `${name} is not offered by this master: the client gets ${codes.UNAVAILABLE_IN_CURRENT_STATUS}`);
    }
    return wrong(codes.UNAVAILABLE_IN_CURRENT_STATUS);
  }

  return {
    MountNoFSegment: (segment, clientID) => done(native.mount(asSegment(segment), clientID)),
    ReMountNoFSegment: (segments, clientID) => done(native.remount(segments.map(asSegment), clientID)),
    UnmountNoFSegment: (id, clientID) => done(native.unmount(id, clientID, 0)),
    GetAllNoFSegments: () => ({
      ok: true,
      value: nofRows().map(({ id, name, base, sizeBytes, endpoint }) => ({ id, name, base: BigInt(base), sizeBytes: BigInt(sizeBytes), endpoint })),
    }),
    GetNoFSegmentsByName(name) {
      const found = nofRows().filter((row) => row.name === name);
      return found.length === 0 ? wrong(codes.SEGMENT_NOT_FOUND) : { ok: true, value: found.map(({ id, clientID }) => ({ segment: id, client: clientID })) };
    },
    // This master assigns no generations, so a client's generation is never the current one and nothing is evicted.
    EvictDiskReplicaIfCurrent(_clientID, key, tenant, type) {
      const localDisk = 2;
      const { code } = native.holdersOf(key, tenant);
      if (code === codes.OBJECT_NOT_FOUND) return wrong(code);
      return type === localDisk ? { ok: true, value: false } : wrong(codes.INVALID_PARAMS);
    },
    RegisterPrefetchTask: () => notOffered("RegisterPrefetchTask"),
    DynamicReplicaCopyStart: () => notOffered("DynamicReplicaCopyStart"),
    DynamicReplicaCopyEnd: () => notOffered("DynamicReplicaCopyEnd"),
    DynamicReplicaCopyRevoke: () => notOffered("DynamicReplicaCopyRevoke"),
  };
}
