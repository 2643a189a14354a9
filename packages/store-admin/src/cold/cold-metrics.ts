// Metrics of the cold tier: bytes and states of devices, and offloads by state.
import type { Metrics } from "@svc/kit/metrics.ts";
import type { ColdTier } from "./cold-tier.ts";
import { deviceStates, isSchedulable } from "./device.ts";
import type { Offloads } from "./offloads.ts";

export function exposeColdTier(metrics: Metrics, tier: ColdTier, offloads: Offloads): void {
  metrics.gauge("svc_store_admin_offloads", "Offloads to the cold tier by state, ended ones for 10 minutes", ["state"], (gauge) => {
    gauge.reset();
    for (const [state, count] of offloads.counts()) gauge.set({ state }, count);
  });
  // Only devices without a tenant are shown. If the records cannot be read, the gauges keep their last values.
  const known = () => tier.list("", {}).catch(() => undefined);
  metrics.gauge("svc_store_admin_devices", "Cold-tier devices by state", ["state"], async (gauge) => {
    const devices = await known();
    for (const state of deviceStates) if (devices !== undefined) gauge.set({ state }, devices.filter((device) => device.state === state).length);
  });
  const labels = ["device", "owner"] as const;
  metrics.gauge("svc_store_admin_device_used_bytes", "Bytes of objects on a cold-tier device, as it was last seen", labels, async (gauge) => {
    const devices = await known();
    if (devices !== undefined) gauge.reset();
    for (const { definition, usedBytes } of devices ?? []) gauge.set({ device: definition.device_id, owner: definition.stable_id }, usedBytes);
  });
  metrics.gauge("svc_store_admin_device_capacity_bytes", "Bytes that objects may take on a cold-tier device", labels, async (gauge) => {
    const devices = await known();
    if (devices !== undefined) gauge.reset();
    for (const { definition, capacityBytes } of devices ?? []) gauge.set({ device: definition.device_id, owner: definition.stable_id }, capacityBytes ?? 0);
  });
  metrics.gauge("svc_store_admin_device_schedulable", "1 while a cold-tier device takes new objects", labels, async (gauge) => {
    const devices = await known();
    if (devices !== undefined) gauge.reset();
    for (const device of devices ?? []) gauge.set({ device: device.definition.device_id, owner: device.definition.stable_id }, isSchedulable(device) ? 1 : 0);
  });
}
