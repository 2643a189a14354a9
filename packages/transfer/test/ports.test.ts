// The address and ports of an engine: those requested, or one of the range, and errors that name the request.
import assert from "node:assert/strict";
import { connect, createServer } from "node:net";
import { test } from "node:test";
import { TransferEngine } from "../src/engine.ts";
import { startEngine } from "./parts.ts";
import { startHttp } from "./services.ts";

const reaches = (port: number, host: string) =>
  new Promise<boolean>((resolve) => {
    const socket = connect(port, host);
    socket.once("connect", () => resolve(true)).once("error", () => resolve(false));
    socket.once("connect", () => socket.destroy());
  });

void test("ip_or_host_name is the address of both ports, and the one that the records name", async () => {
  await using service = await startHttp();
  // No engine of another test uses these ports at 127.0.0.1.
  const settings = { min_rpc_port: 17_001, max_rpc_port: 18_000 };
  await using engine = await startEngine({ metadata: service.metadata, name: "bound", host: "127.0.0.5", settings });
  const record = JSON.parse((await service.get("svc/ram/bound")) ?? "") as { tcp_data_host: string; tcp_data_port: number };
  const address = JSON.parse((await service.get("svc/rpc_meta/bound")) ?? "") as Record<string, unknown>;
  assert.deepEqual([address["ip_or_host_name"], address["rpc_port"]], ["127.0.0.5", engine.getRpcPort()]);
  assert.equal(record.tcp_data_host, "127.0.0.5");
  for (const port of [engine.getRpcPort(), record.tcp_data_port]) {
    assert.equal(await reaches(port, "127.0.0.5"), true);
    assert.equal(await reaches(port, "127.0.0.1"), false);
  }
  await using other = await startEngine({ metadata: service.metadata, name: "other", host: "localhost" });
  await other.checkSegmentStatus(await other.openSegment("bound"));
  assert.match(other.getLocalIpAndPort(), /^localhost:\d+$/);
});

void test("an invalid host, and a port above 65535, are refused by name", async () => {
  const engine = new TransferEngine({ settings: { log_level: 0 } });
  await assert.rejects(engine.init({ metadata: "P2PHANDSHAKE", name: "x.invalid", host: "x.invalid" }), /x\.invalid/);
  await assert.rejects(engine.init({ metadata: "P2PHANDSHAKE", name: "127.0.0.1", rpcPort: 70_000 }), /70000/);
});

void test("rpc_port 0 or omitted takes a free port of the range, and a range without one is an error that names it", async () => {
  const blocker = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => blocker.once("listening", resolve));
  const { port } = blocker.address() as { port: number };
  const engine = new TransferEngine({ settings: { log_level: 0, min_rpc_port: port, max_rpc_port: port } });
  try {
    await assert.rejects(engine.init({ metadata: "P2PHANDSHAKE", name: "127.0.0.1" }), new RegExp(`no free port from ${port} to ${port} on 127\\.0\\.0\\.1`));
  } finally {
    blocker.close();
  }
  for (const rpcPort of [undefined, 0]) {
    await using free = await startEngine(rpcPort === undefined ? {} : { rpcPort });
    assert.ok(free.getRpcPort() >= 15_000 && free.getRpcPort() <= 17_000);
  }
});
