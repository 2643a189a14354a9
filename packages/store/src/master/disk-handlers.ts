// The calls of disk owners: our clients, whose files are segments of the transfer engine, and Mooncake's.
import { codes } from "../rpc/codes.ts";
import type { ArgsOf, OperationName, ResultOf } from "../rpc/operations.ts";
import type { Descriptor, Order } from "../rpc/shapes.ts";
import type { NativeMaster } from "./native.ts";
import { done, wrong } from "./outcome.ts";

/** The objects per heartbeat of a Mooncake client, which sends one every ten seconds. */
const MAX_MOONCAKE_ORDERS = 1000;

/** The wire's replica type of a file in the shared folder. */
const DISK = 1;

const items = (orders: Order[] | number) =>
  typeof orders === "number" ? wrong(orders) : ({ ok: true, value: orders.map(({ tenant, key, sizeBytes }) => ({ tenant, key, sizeBytes })) } as const);

type Handlers = { readonly [N in OperationName]?: (...args: ArgsOf<N>) => ResultOf<N> };

export function diskHandlers(native: NativeMaster): Handlers {
  return {
    DropFiles: (clientID, diskID, files, damaged) => done(native.dropFiles(clientID, diskID, files, damaged)),
    FailOffloads: (clientID, diskID, failed) => done(native.failOffloads(clientID, diskID, failed)),
    ReportWrongBytes: (key, replicaID, tenant) => done(native.reportWrongBytes(tenant, key, replicaID)),

    MountLocalDiskSegment: (clientID, isEnabled) =>
      done(native.mountDisk(clientID, { id: clientID, label: 0, isOurs: false, isEnabled, capacityBytes: 2n ** 63n - 1n, endpoint: "" })),
    UnmountLocalDiskSegment: (clientID) => done(native.unmountDisks(clientID)),
    OffloadObjectHeartbeat: (clientID, isEnabled) => items(native.mooncakeOrders(clientID, isEnabled, MAX_MOONCAKE_ORDERS)),
    PromotionObjectHeartbeat: (clientID) => items(native.mooncakePromotions(clientID)),
    ReportSsdCapacity: (clientID, bytes) => done(bytes < 0n ? codes.INVALID_PARAMS : native.setCapacity(clientID, bytes)),
    PollRemoveAll(clientID) {
      const wipe = native.takeWipe(clientID);
      return wipe < 0 ? wrong(wipe) : { ok: true, value: wipe === 1 };
    },
    NotifyOffloadSuccess(clientID, tasks, files) {
      if (tasks.length !== files.length || tasks.some(({ sizeBytes }) => sizeBytes < 0n)) return done(codes.INVALID_PARAMS);
      return done(native.keepMooncakeFiles(clientID, tasks, files[0]?.endpoint ?? ""));
    },
    PromotionAllocStart(clientID, key, tenant, sizeBytes, preferred) {
      const { code, target: text } = native.promoteStart(clientID, tenant, key, sizeBytes, preferred);
      const [target] = code === codes.OK ? descriptorsFrom(text) : [];
      return target === undefined ? wrong(code === codes.OK ? codes.INTERNAL_ERROR : code) : { ok: true, value: { target } };
    },
    NotifyPromotionSuccess: (clientID, key, tenant) => done(native.promoteEnd(clientID, tenant, key, true)),
    NotifyPromotionFailure: (clientID, key, tenant) => done(native.promoteEnd(clientID, tenant, key, false)),
    EvictDiskReplica(clientID, key, tenant, type) {
      return done(type === DISK ? (native.evictFiles(tenant, [key])[0] ?? codes.INTERNAL_ERROR) : native.dropMooncakeFile(clientID, tenant, key));
    },
    BatchEvictDiskReplica(clientID, keys, tenant, type) {
      return type === DISK ? native.evictFiles(tenant, keys).map(done) : keys.map((key) => done(native.dropMooncakeFile(clientID, tenant, key)));
    },
    StartFiles(clientID, wanted, tenant) {
      return native.startFiles(clientID, tenant, wanted).map((each) => (typeof each === "number" ? wrong(each) : { ok: true, value: each }));
    },
    EndFiles: (clientID, files, tenant) => native.endFiles(clientID, tenant, files).map(done),
  };
}

type ReplicaRow = {
  nof?: boolean;
  id: string;
  sizeBytes: string;
  address?: string;
  protocol?: string;
  clientID?: string;
  path?: string;
  endpoint?: string;
  status: number;
};

/** Parses the core's JSON. */
export function descriptorsFrom(text: string): readonly Descriptor[] {
  return (JSON.parse(text) as ReplicaRow[]).map(({ id, nof = false, sizeBytes: size, address = "0", protocol = "", clientID, path, endpoint = "", status }) => {
    const sizeBytes = BigInt(size);
    const place: Descriptor["place"] =
      path !== undefined
        ? { type: "disk", path, sizeBytes }
        : clientID === undefined
          ? { type: nof ? "nof" : "memory", buffer: { sizeBytes, address: BigInt(address), protocol, endpoint } }
          : { type: "localDisk", clientID, sizeBytes, endpoint };
    return { id: BigInt(id), place, status };
  });
}
