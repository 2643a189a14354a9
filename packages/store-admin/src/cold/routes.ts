// The HTTP routes of the cold tier: sixteen operations below /v1/cold-tier. ?tenant= selects a tenant's devices.
import type { z } from "zod";
import { type Call, inputOf, type Reply, type Route, truthOf } from "../http/route.ts";
import type { Masters } from "../masters/masters.ts";
import { backingOf } from "./backings.ts";
import type { ColdTier } from "./cold-tier.ts";
import { type Device, isSchedulable } from "./device.ts";
import { bodies, deviceBody, filterOf } from "./input.ts";
import { batchOf, type Offloads, type OffloadTask } from "./offloads.ts";

const BASE = "/v1/cold-tier";
const DEVICE = `${BASE}/devices/{device_id}`;
const OFFLOADS = `${BASE}/offloads`;
const DEFAULT_OFFLOADS = 64;

export type ColdParts = { readonly tier: ColdTier; readonly offloads: Offloads; readonly masters: Masters };

export function coldRoutes({ tier, offloads, masters }: ColdParts): Route[] {
  const tenantOf = ({ search }: Call) => search.get("tenant") ?? "";
  const get = (path: string, does: string, answer: (call: Call, tenant: string) => Promise<object>): Route => ({
    method: "GET",
    path,
    does,
    answer: async (call) => ({ status: 200, value: await answer(call, tenantOf(call)) }),
  });
  function post<T extends z.ZodType>(
    path: string,
    does: string,
    body: T,
    answer: (input: z.output<T>, id: string, tenant: string, search: URLSearchParams) => Promise<Reply>,
  ): Route {
    return { method: "POST", path, does, answer: (call) => answer(inputOf(body, call.body), idOf(call), tenantOf(call), call.search) };
  }
  const toggle = (verb: "enable" | "disable"): Route =>
    post(
      `${DEVICE}/${verb}`,
      verb === "disable" ? "Takes no new objects from now on" : "Takes new objects again",
      verb === "disable" ? bodies.disable : bodies.none,
      async (_input, id, tenant) => ok({ ...about(await tier.setEnabled(tenant, id, verb === "enable")), message: `device ${id} is ${verb}d` }),
    );

  return [
    post(`${BASE}/devices`, "Creates a device of the cold tier", deviceBody, async (definition, _id, tenant, search) => {
      const { device, isNew } = await tier.create(tenant, definition, truthOf(search.get("check"), false));
      return { status: 201, value: { ...shown(device), message: isNew ? "device created" : "device already exists" } };
    }),
    get(`${BASE}/devices`, "All devices", async ({ search }, tenant) => ({ devices: (await tier.list(tenant, filterOf(search))).map(shown) })),
    get(DEVICE, "One device, as its owner says it is now", async (call, tenant) => shown(await tier.probe(tenant, idOf(call)))),
    post(`${DEVICE}/register`, "Has its owner serve it", bodies.register, async ({ scan_existing: scans, dry_run: isDryRun }, id, tenant) => {
      const { device, epoch, files, usedBytes } = await tier.register(tenant, id, scans ?? true, isDryRun ?? false);
      const { stable_id, cold_tier_id } = device.definition;
      const message = isDryRun ? `device ${id} can be registered` : `device ${id} is registered`;
      const found = { dry_run: isDryRun ?? false, scanned_objects: (scans ?? true) ? files : 0, used_bytes: usedBytes };
      return { status: 201, value: { ...about(device), stable_id, epoch, cold_tier_id, ...found, message } };
    }),
    post(`${DEVICE}/unregister`, "Takes it out of service, once no object lies there", bodies.unregister, async ({ dry_run: isDryRun, force }, id, tenant) => {
      const { device, holding } = await tier.unregister(tenant, id, isDryRun ?? false, force ?? false);
      const isLeft = device.state !== "unregistered" && isDryRun !== true;
      const message = isLeft
        ? `${holding.blocked} objects lie on device ${id}: it is draining`
        : isDryRun
          ? "nothing was changed"
          : `device ${id} is unregistered`;
      return ok({ ...about(device), dry_run: isDryRun ?? false, blocked_objects: holding.blocked, inflight_operations: 0, message });
    }),
    toggle("disable"),
    toggle("enable"),
    post(`${DEVICE}/drain`, "Gives up what memory has too, and moves the rest to memory", bodies.drain, async (input, id, tenant) => {
      const isDryRun = input.dry_run ?? false;
      const [executor, targets] = [input.migration_task_executor ?? undefined, input.migration_target_segments ?? []];
      const { device, ...counts } = await tier.drain(tenant, id, { isDryRun, executor, targets, maxRetries: input.migration_max_retries ?? undefined });
      return ok({
        ...about(device),
        dry_run: isDryRun,
        blocked_objects: counts.blocked,
        reclaimable_objects: counts.reclaimable,
        marked_pending_delete: counts.marked,
        collected_pending_delete: counts.collected,
        migration_tasks_submitted: counts.submitted,
        message: isDryRun ? "nothing was changed" : `device ${id} is draining; ${counts.submitted} objects are being moved to memory`,
      });
    }),
    get(`${DEVICE}/blockers`, "What keeps it from being unregistered", async (call, tenant) => {
      const { device, holding, pendingDelete, inflight } = await tier.blockers(tenant, idOf(call));
      const { blocked, reclaimable } = holding;
      return {
        ...about(device),
        blocked_objects: blocked,
        reclaimable_objects: reclaimable,
        pending_delete_objects: pendingDelete,
        inflight_operations: inflight,
      };
    }),
    post(`${DEVICE}/manual-gc`, "Removes files that were given up", bodies.none, async (_input, id, tenant) => {
      const { pendingDelete, collected } = await tier.collect(tenant, id);
      return ok({ device_id: id, pending_delete_objects: pendingDelete, collected_objects: collected, message: `${collected} files were removed` });
    }),
    post(`${DEVICE}/manual-free`, "Gives up objects that memory has too", bodies.none, async (_input, id, tenant) => {
      const { inflight, attempted, freed, collected, skipped, reached } = await tier.free(tenant, id);
      return ok({
        device_id: id,
        inflight_operations: inflight,
        attempted_victims: attempted,
        freed_backings: freed,
        collected_backings: collected,
        skipped_backings: skipped,
        reached_low_watermark: reached,
        message: `${freed} objects that memory has too were freed`,
      });
    }),
    get(`${DEVICE}/orphan-quarantine`, "Files that were quarantined", async (call, tenant) => {
      const { device, rootDir, count, totalBytes, files } = await tier.quarantine(tenant, idOf(call));
      const { device_id, cold_tier_id } = device.definition;
      return { device_id, cold_tier_id, root_dir: rootDir, count, total_bytes: totalBytes, files };
    }),
    get(`${BASE}/objects/{key}`, "An object's copy in the cold tier", async (call, tenant) => {
      const [key, { search }] = [call.params["key"] ?? "", call];
      const object = { tenant: tenant === "" ? "default" : tenant, domain: search.get("domain"), object_set: search.get("object_set"), key };
      return { key, cold_backing: await backingOf(object, masters, tier, tenant) };
    }),
    post(`${OFFLOADS}/trigger`, "Fills an owner's device with objects of its memory", bodies.trigger, async ({ stable_id, max_tasks }, _id, tenant) => ({
      status: 202,
      value: offloadShown(await offloads.trigger(tenant, stable_id, max_tasks ?? DEFAULT_OFFLOADS)),
    })),
    get(OFFLOADS, "All offloads", async (_call, tenant) => {
      const tasks = offloads.all(tenant).map(offloadShown);
      return { count: tasks.length, tasks };
    }),
    get(`${OFFLOADS}/{task_id}`, "One offload", async (call, tenant) => offloadShown(offloads.find(tenant, call.params["task_id"] ?? ""))),
  ];
}

const ok = (value: object): Reply => ({ status: 200, value });
const idOf = ({ params }: Call) => params["device_id"] ?? "";
const about = (device: Device) => ({ device_id: device.definition.device_id, state: device.state, schedulable: isSchedulable(device) });

function shown(device: Device): object {
  const { definition, epoch, rootDir, state, capacityBytes, usedBytes, reservedBytes, failureCount, lastError } = device;
  return {
    device_id: definition.device_id,
    cold_tier_id: definition.cold_tier_id,
    stable_id: definition.stable_id,
    epoch,
    kind: definition.kind,
    target: definition.target,
    root_dir: rootDir,
    state,
    schedulable: isSchedulable(device),
    capacity_bytes: capacityBytes,
    used_bytes: usedBytes,
    reserved_bytes: reservedBytes,
    free_bytes: capacityBytes === null ? null : Math.max(0, capacityBytes - usedBytes - reservedBytes),
    failure_count: failureCount,
    last_error: lastError,
    tags: definition.tags,
  };
}

function offloadShown(task: OffloadTask): object {
  return {
    task_id: task.id,
    stable_id: task.stableID,
    epoch: task.epoch,
    max_tasks: task.maxTasks,
    batch_size: batchOf(task),
    state: task.state,
    materialized: task.materialized,
    batches: task.batches,
    last_error: task.lastError,
    created_at_ms: task.createdMs,
    updated_at_ms: task.updatedMs,
  };
}
