// A name belongs to one engine at a time, and only that engine renews and deletes its records.
import assert from "node:assert/strict";
import { test } from "node:test";
import { eventually, startChild, startEngine } from "./parts.ts";
import { startHttp } from "./services.ts";

const recordOf = async (service: { get(key: string): Promise<string | undefined> }, kind: "ram" | "rpc_meta", name: string) =>
  JSON.parse((await service.get(`svc/${kind}/${name}`)) ?? "{}") as { instance?: string; rpc_port?: number };

void test("a second engine is refused the name of one that runs or is stopped, and the record stays unchanged", async () => {
  await using service = await startHttp();
  await using first = await startChild({ metadata: service.metadata, name: "depot" });
  const before = await service.get("svc/rpc_meta/depot");
  const refused = { name: "INVALID_REQUEST", message: /an engine named depot is running at 127\.0\.0\.1:\d+, .*unique.*use another name/ };
  await assert.rejects(startEngine({ metadata: service.metadata, name: "depot" }), refused);
  await assert.rejects(startEngine({ metadata: service.metadata, name: "depot", autoDiscover: true, transports: [] }), refused);
  await first.freeze();
  await assert.rejects(startEngine({ metadata: service.metadata, name: "depot" }), refused);
  first.thaw();
  assert.equal(await service.get("svc/rpc_meta/depot"), before);
  assert.notEqual(await service.get("svc/ram/depot"), undefined);
});

void test("a name is free again after its engine was freed, or was killed with its record still present", async () => {
  await using service = await startHttp();
  const settings = { lease_ms: 3_600_000, log_level: 0 };
  const first = await startChild({ metadata: service.metadata, name: "depot", settings });
  await first.ask({ op: "free" });
  assert.equal(await service.get("svc/rpc_meta/depot"), undefined);
  await first[Symbol.asyncDispose]();
  const second = await startChild({ metadata: service.metadata, name: "depot", settings });
  const { rpc_port: port } = await recordOf(service, "rpc_meta", "depot");
  await second[Symbol.asyncDispose]();
  assert.notEqual(await service.get("svc/rpc_meta/depot"), undefined);
  // The recorded port now belongs to another engine with a different name.
  await using other = await startChild({ metadata: service.metadata, name: "neighbour", rpcPort: port as number });
  assert.equal(other.segment, "neighbour");
  await using third = await startEngine({ metadata: service.metadata, name: "depot", settings });
  assert.equal(third.getServerName(), "depot");
});

void test("an engine whose name another has taken neither renews nor deletes the other's records", async () => {
  await using service = await startHttp();
  const settings = { heartbeat_ms: 50, log_level: 0 };
  await using first = await startEngine({ metadata: service.metadata, name: "depot", settings });
  const taken = JSON.stringify({ ip_or_host_name: "127.0.0.1", rpc_port: 9, instance: "another" });
  const segment = JSON.stringify({ ...(await recordOf(service, "ram", "depot")), instance: "another" });
  await eventually(async () => {
    // A renewal that read the record just before may have overwritten it, so we write it again.
    if ((await service.get("svc/rpc_meta/depot")) !== taken) await service.put("svc/rpc_meta/depot", taken);
    return first.registerLocalMemory(new Uint8Array(8)).then(
      () => undefined,
      (error: Error) => (/another engine has taken the name/.test(error.message) ? true : undefined),
    );
  }, "the engine notices");
  await service.put("svc/ram/depot", segment);
  await new Promise((resolve) => setTimeout(resolve, 300));
  await first.freeEngine();
  assert.equal(await service.get("svc/rpc_meta/depot"), taken);
  assert.equal(await service.get("svc/ram/depot"), segment);
});

void test("a segment record deleted by removeLocalSegment stays deleted until the engine registers memory again", async () => {
  await using service = await startHttp();
  await using engine = await startEngine({ metadata: service.metadata, name: "depot", settings: { heartbeat_ms: 20, lease_ms: 60_000 } });
  await engine.removeLocalSegment("depot");
  const address = (await recordOf(service, "rpc_meta", "depot")).instance;
  for (let look = 0; look < 20; look++) {
    assert.equal(await service.get("svc/ram/depot"), undefined);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  assert.equal((await recordOf(service, "rpc_meta", "depot")).instance, address);
  await engine.registerLocalMemory(new Uint8Array(64));
  assert.equal((await recordOf(service, "ram", "depot")).instance, address);
});
