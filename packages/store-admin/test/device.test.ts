// The states of a cold-tier device: no sequence of events strands an object, and only the owner's latest start is accepted.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Failure } from "@svc/contract/failures.ts";
import fc from "fast-check";
import { advance, created, type Device, type DeviceDefinition, type DeviceEvent, deviceStates, isSame, isSchedulable } from "../src/cold/device.ts";

const definition: DeviceDefinition = {
  stable_id: "owner",
  device_id: "ssd-1",
  cold_tier_id: "ssd-1",
  kind: "ssd",
  target: { type: "directory", path: "/cold" },
  capacity_override_bytes: null,
  tags: ["a", "b"],
};
const usage = (usedBytes: number, reservedBytes = 0) => ({ diskID: "d", rootDir: "/cold", capacityBytes: 100, usedBytes, reservedBytes });
const none = { blocked: 0, reclaimable: 0, reservedBytes: 0 };
const healthy = advance(created(definition), { type: "registered", epoch: 5, usage: usage(10) });

/** Returns a device in the given state. */
function inState(state: Device["state"]): Device {
  if (state === "unregistered") return created(definition);
  if (state === "full") return advance(healthy, { type: "probed", epoch: 5, usage: usage(100) });
  if (state === "failed") return advance(healthy, { type: "broke", epoch: 5, why: "read-only" });
  if (state === "draining") return advance(healthy, { type: "drain" });
  return state === "disabled_by_admin" ? advance(healthy, { type: "disable" }) : healthy;
}

const outcome = (state: Device["state"], event: DeviceEvent): string => {
  try {
    return advance(inState(state), event).state;
  } catch (error) {
    assert.ok(error instanceof Failure);
    return String(error.row.http);
  }
};

void test("every transition of a device is in one table, and any other is refused with 400 or 409", () => {
  const stranded = { blocked: 3, reclaimable: 2, reservedBytes: 0 };
  const rows: [DeviceEvent, string[]][] = [
    // The columns are: unregistered, healthy, full, disabled_by_admin, draining, failed.
    [{ type: "registered", epoch: 6, usage: usage(1) }, ["healthy", "healthy", "healthy", "healthy", "healthy", "healthy"]],
    [{ type: "registered", epoch: 4, usage: usage(1) }, ["healthy", "409", "409", "409", "409", "409"]],
    [{ type: "probed", epoch: 5, usage: usage(1) }, ["409", "healthy", "healthy", "disabled_by_admin", "draining", "healthy"]],
    [{ type: "probed", epoch: 6, usage: usage(1) }, ["409", "healthy", "healthy", "disabled_by_admin", "draining", "healthy"]],
    [{ type: "probed", epoch: 4, usage: usage(1) }, ["409", "409", "409", "409", "409", "409"]],
    [{ type: "probed", epoch: 5, usage: usage(60, 40) }, ["409", "full", "full", "disabled_by_admin", "draining", "full"]],
    [{ type: "broke", epoch: 5, why: "x" }, ["409", "failed", "failed", "disabled_by_admin", "draining", "failed"]],
    [{ type: "disable" }, ["400", "disabled_by_admin", "disabled_by_admin", "disabled_by_admin", "400", "400"]],
    [{ type: "enable" }, ["400", "healthy", "full", "healthy", "400", "400"]],
    [{ type: "drain" }, ["400", "draining", "draining", "draining", "draining", "draining"]],
    [{ type: "unregister", force: false, holding: none }, Array(6).fill("unregistered")],
    [{ type: "unregister", force: false, holding: stranded }, ["unregistered", "draining", "draining", "draining", "draining", "draining"]],
    [{ type: "unregister", force: true, holding: stranded }, ["unregistered", "409", "409", "409", "409", "409"]],
    [{ type: "unregister", force: true, holding: { ...stranded, reclaimable: 3 } }, Array(6).fill("unregistered")],
    [{ type: "unregister", force: true, holding: { ...none, reservedBytes: 1 } }, ["unregistered", "409", "409", "409", "409", "409"]],
  ];
  for (const [event, expected] of rows)
    assert.deepEqual(
      deviceStates.map((state) => outcome(state, event)),
      expected,
      JSON.stringify(event),
    );
});

void test("a device takes objects only while it is healthy and has space, and an unregistered one has no epoch", () => {
  const event = fc.oneof(
    fc.record({
      type: fc.constantFrom("registered" as const, "probed" as const),
      epoch: fc.integer({ min: 1, max: 4 }),
      usage: fc.nat(120).map((bytes) => usage(bytes)),
    }),
    fc.record({ type: fc.constant("broke" as const), epoch: fc.integer({ min: 1, max: 4 }), why: fc.constant("read-only") }),
    fc.record({ type: fc.constantFrom("disable" as const, "enable" as const, "drain" as const) }),
    fc.record({
      type: fc.constant("unregister" as const),
      force: fc.boolean(),
      holding: fc.record({ blocked: fc.nat(2), reclaimable: fc.nat(2), reservedBytes: fc.nat(1) }),
    }),
  );
  fc.assert(
    fc.property(fc.array(event, { maxLength: 60 }), (events) => {
      let device = created(definition);
      for (const each of events) {
        const before = device;
        try {
          device = advance(device, each);
        } catch (error) {
          assert.ok(error instanceof Failure && (error.row.http === 400 || error.row.http === 409));
        }
        if (isSchedulable(device)) assert.ok(device.state === "healthy" && device.usedBytes + device.reservedBytes < (device.capacityBytes ?? Infinity));
        assert.equal(device.epoch === null, device.state === "unregistered");
        if (before.epoch !== null && device.epoch !== null) assert.ok(device.epoch >= before.epoch, "an epoch goes back");
        if (each.type === "unregister" && before.state !== "unregistered" && device.state === "unregistered")
          assert.ok(each.holding.blocked === 0 || (each.force && each.holding.blocked === each.holding.reclaimable), "an object was stranded");
      }
    }),
  );
});

void test("two definitions are equal if only the order of their tags differs, and different if any other member does", () => {
  assert.ok(isSame(definition, { ...definition, tags: ["b", "a"] }));
  for (const other of [
    { kind: "nfs" },
    { stable_id: "x" },
    { capacity_override_bytes: 5 },
    { tags: ["a"] },
    { target: { type: "uuid", uuid: "/cold" } as const },
  ])
    assert.ok(!isSame(definition, { ...definition, ...other }), JSON.stringify(other));
});
