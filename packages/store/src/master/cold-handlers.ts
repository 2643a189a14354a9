// The calls for devices of the cold tier: their contents, dropped files, objects to offload, and commands to their owners.
import { codes } from "../rpc/codes.ts";
import type { ArgsOf, OperationName, ResultOf } from "../rpc/operations.ts";
import type { Members } from "./members.ts";
import type { NativeMaster } from "./native.ts";
import { done, wrong } from "./outcome.ts";
import { MAX_COMMAND_BYTES, type Tasks } from "./tasks.ts";

/** Lower labels belong to other disks. */
const FIRST_COLD = 0x8000;
/** The number of records that one call examines. */
const MAX_RECORDS = 5_000;

type Handlers = { readonly [N in OperationName]?: (...args: ArgsOf<N>) => ResultOf<N> };
type DiskRow = {
  disk_id: string;
  client_id: string;
  name: string;
  capacity_bytes: number;
  used_bytes: number;
  objects: number;
  waiting_objects: number;
  dropped_objects: number;
  takes_objects: boolean;
  readable: boolean;
  cold: boolean;
};

export const coldRows = (native: NativeMaster): DiskRow[] => (JSON.parse(native.disks()) as DiskRow[]).filter(({ cold }) => cold);

/** @param knowsTenant whether an administrator's tenant exists: with tenants off, its keys would be everyone's. */
export function coldHandlers(native: NativeMaster, tasks: Tasks, members: Members, knowsTenant: (name: string) => boolean): Handlers {
  /** Returns true if another live client has the device, and this one is not a later start of it. */
  function isAnothers(clientID: string, diskID: string): boolean {
    const holder = coldRows(native).find((row) => row.disk_id === diskID)?.client_id ?? clientID;
    if (holder === clientID) return false;
    const all = members.all();
    const [own, other] = [clientID, holder].map((id) => all.find((member) => member.clientID === id));
    return other?.isHeard === true && (own?.stableID !== other.stableID || own.epoch <= other.epoch);
  }

  return {
    // Two clients must not serve one device, since each would remove files that the other knows. The earlier start loses the device for good.
    MountDisk: (clientID, disk) =>
      disk.label >= FIRST_COLD && isAnothers(clientID, disk.id) ? wrong(codes.ILLEGAL_CLIENT) : done(native.mountDisk(clientID, { ...disk, isOurs: true })),
    UnmountDisk: (clientID, diskID, isEmpty) => done(native.unmountDisk(clientID, diskID, isEmpty)),
    QueueOffloads(clientID, diskID, tenant, most) {
      if (!knowsTenant(tenant)) return wrong(codes.TENANT_NOT_REGISTERED);
      const { code, queued, hasEnded } = native.queueCold(clientID, diskID, tenant, most, MAX_RECORDS);
      return code === codes.OK ? { ok: true, value: { queued, hasEnded } } : wrong(code);
    },
    FillDevice: (clientID, diskID, tenant, fills) =>
      knowsTenant(tenant) ? done(native.fillCold(clientID, diskID, fills, tenant)) : wrong(codes.TENANT_NOT_REGISTERED),
    ListColdDisks: () => ({
      ok: true,
      value: coldRows(native).map((row) => ({
        id: row.disk_id,
        clientID: row.client_id,
        name: row.name,
        capacityBytes: BigInt(row.capacity_bytes),
        usedBytes: BigInt(row.used_bytes),
        files: BigInt(row.objects),
        waiting: BigInt(row.waiting_objects),
        dropped: BigInt(row.dropped_objects),
        takesObjects: row.takes_objects,
        isReadable: row.readable,
      })),
    }),
    ListFiles(diskID, cursor) {
      if (!coldRows(native).some((row) => row.disk_id === diskID)) return wrong(codes.SEGMENT_NOT_FOUND);
      return { ok: true, value: native.filesOn(diskID, cursor, MAX_RECORDS) };
    },
    ReleaseFiles: (diskID, files) => files.map(({ tenant, key, file }) => done(native.releaseCold(diskID, tenant, key, file))),
    CommandClient(stableID, epoch, command) {
      const member = members.find(stableID, epoch);
      // A client that announced no stable id cannot obey commands.
      if (member === undefined || (member !== "stale" && member.epoch === 0n)) return wrong(codes.CLIENT_NOT_FOUND);
      if (member === "stale") return wrong(codes.ILLEGAL_CLIENT);
      if (command.length > MAX_COMMAND_BYTES) return wrong(codes.INVALID_PARAMS);
      return tasks.createCommand(member.clientID, command);
    },
  };
}
