// Requirements on every metadata service: keys, records, leases, recovery.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ramRecord } from "@svc/contract/metadata.ts";
import { eventually, MIB, randomBytes, sha256, startChild, startEngine } from "./parts.ts";
import type { Service } from "./services.ts";

export function metadataSuite(kind: string, options: { skip: string | false }, start: () => Promise<Service>): void {
  void test(`${kind}: engines find each other by name, move bytes, and leave no keys behind`, options, async () => {
    await using service = await start();
    const here = await startEngine({ metadata: service.metadata, name: "here" });
    const there = await startEngine({ metadata: service.metadata, name: "there" });
    const source = randomBytes(MIB);
    const sink = new Uint8Array(MIB);
    await here.registerLocalMemory(source);
    const remote = await there.registerLocalMemory(sink, { location: "cpu:0" });
    const target = await here.openSegment("there");
    await here.checkSegmentStatus(target);
    await here.transfer("WRITE", target, [{ local: source, remote }]);
    assert.deepEqual(sink, source);
    await here.sendNotifyByName("there", { name: "n", msg: "m" });
    assert.deepEqual(there.getNotifies(), [{ name: "n", msg: "m" }]);
    const { instance, ...address } = JSON.parse((await service.get("svc/rpc_meta/there")) ?? "") as Record<string, unknown>;
    assert.match(String(instance), /^[0-9a-f]{16}$/);
    assert.deepEqual(address, { ip_or_host_name: "127.0.0.1", rpc_port: there.getRpcPort() });
    const record = ramRecord.parse(JSON.parse((await service.get("svc/ram/there")) ?? ""));
    assert.deepEqual(
      {
        server_name: record.server_name,
        name: record["name"],
        protocol: record.protocol,
        devices: record.devices,
        version: record["tcp_proto_version"],
        host: record["tcp_data_host"],
      },
      { server_name: "there", name: "there", protocol: "tcp", devices: [], version: 2, host: "127.0.0.1" },
    );
    assert.deepEqual({ ...record.buffers[0], lkey: undefined }, { name: "cpu:0", addr: Number(remote), length: MIB, rkey: [], lkey: undefined });
    await Promise.all([here.freeEngine(), there.freeEngine()]);
    for (const key of ["svc/rpc_meta/here", "svc/ram/here", "svc/rpc_meta/there", "svc/ram/there"]) assert.equal(await service.get(key), undefined, key);
  });

  void test(`${kind}: brand and cluster id are part of every key`, options, async () => {
    await using service = await start();
    await using engine = await startEngine({ metadata: service.metadata, name: "one", settings: { brand: "other", cluster_id: "blue", log_level: 0 } });
    assert.equal(engine.getMetadata().segmentKey("one"), "other/blue/ram/one");
    assert.equal(engine.getMetadata().segmentKey("nvmeof/disk"), "other/blue/nvmeof/disk");
    assert.ok((await service.get("other/blue/ram/one")) !== undefined && (await service.get("other/blue/rpc_meta/one")) !== undefined);
  });

  void test(
    `${kind}: a segment that nobody published is an error that names its key, and the record of the specification is read as well`,
    options,
    async () => {
      await using service = await start();
      await using engine = await startEngine({ metadata: service.metadata, name: "reader" });
      await assert.rejects(engine.openSegment("nobody"), /svc\/ram\/nobody/);
      await service.put("svc/ram/bad", "{no json");
      await assert.rejects(engine.openSegment("bad"), /not valid JSON/);
      const plain = {
        server_name: "plain",
        protocol: "rdma",
        devices: [{ name: "mlx5_0", lid: 0, gid: "" }],
        priority_matrix: {},
        buffers: [{ name: "cpu:0", addr: 4096, length: 4096, rkey: [1] }],
      };
      await service.put("svc/ram/plain", JSON.stringify(plain));
      const target = await engine.openSegment("plain");
      assert.match(engine.explainPath(target, 4096n, 1), /serves no tcp/);
    },
  );

  void test(`${kind}: the keys of a killed engine expire, and those of a living one do not`, options, async () => {
    await using service = await start();
    const settings = { lease_ms: 2000, heartbeat_ms: 300, log_level: 0 };
    await using living = await startEngine({ metadata: service.metadata, name: "living", settings });
    const killed = await startChild({ metadata: service.metadata, name: "killed", settings });
    const isThere = async (name: string) => ((await service.get(`svc/ram/${name}`)) ?? "") !== "" && ((await service.get(`svc/rpc_meta/${name}`)) ?? "") !== "";
    await eventually(async () => (await isThere("killed")) || undefined, "its keys are there", 60_000);
    await killed[Symbol.asyncDispose]();
    await eventually(
      async () => ((await service.get("svc/ram/killed")) === undefined && (await service.get("svc/rpc_meta/killed")) === undefined ? true : undefined),
      "the lease ends",
      60_000,
    );
    // A stall may have cost the living engine its lease, but its next renewal restores the keys.
    await eventually(async () => (await isThere("living")) || undefined, "the living one's keys stand", 60_000);
    assert.equal(living.getServerName(), "living");
  });

  void test(`${kind}: a service that lost everything receives every record again`, options, async () => {
    await using service = await start();
    await using engine = await startEngine({ metadata: service.metadata, name: "faithful", settings: { heartbeat_ms: 200, log_level: 0 } });
    const remote = await engine.registerLocalMemory(new Uint8Array(4096));
    await service.wipe();
    const text = await eventually(
      async () => ((await service.get("svc/rpc_meta/faithful")) === undefined ? undefined : service.get("svc/ram/faithful")),
      "the records are back",
      60_000,
    );
    assert.equal(ramRecord.parse(JSON.parse(text)).buffers[0]?.addr, Number(remote));
  });

  void test(`${kind}: a peer that restarts under its name at another port is found by the next transfer`, options, async () => {
    await using service = await start();
    await using engine = await startEngine({ metadata: service.metadata, name: "steady" });
    const source = randomBytes(MIB);
    await engine.registerLocalMemory(source);
    const first = await startChild({ metadata: service.metadata, name: "phoenix" });
    const before = await first.ask<string>({ op: "register", length: MIB });
    const target = await engine.openSegment("phoenix");
    engine.transferSync("WRITE", target, [{ local: source, remote: BigInt(before) }]);
    await first[Symbol.asyncDispose]();
    assert.throws(() => engine.transferSync("WRITE", target, [{ local: source, remote: BigInt(before) }]), { name: "TRANSFER_FAILED" });
    await using second = await startChild({ metadata: service.metadata, name: "phoenix" });
    const after = await second.ask<string>({ op: "register", length: MIB });
    await engine.transfer("WRITE", target, [{ local: source, remote: BigInt(after) }]);
    assert.equal(await second.ask({ op: "hash", address: after, length: MIB }), sha256(source));
  });
}
