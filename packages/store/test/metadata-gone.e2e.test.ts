// Records of killed clients: Mooncake's take no lease, and would otherwise stay forever.
import assert from "node:assert/strict";
import { createServer } from "node:net";
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { freePorts } from "@svc/harness/ports.ts";
import { until } from "@svc/harness/until.ts";
import { startHolder } from "./holder.ts";
import { startMaster } from "./master.ts";
import { startMetadataServer, type TestServer } from "./server.ts";

const keysOf = async (server: TestServer): Promise<string[]> => Object.keys((await (await fetch(`${server.url}?prefix=`)).json()) as object).sort();

void test("after a SIGKILL of a Mooncake client its ram and rpc_meta records end, and those of another stay", needs("python-clients", "python3"), async () => {
  await using master = await startMaster();
  await using server = await startMetadataServer(["--metadata.gone_client_seconds=2"]);
  await using stays = await startHolder({ master: master.rpcPort, metadata: server.url, name: "127.0.0.1" });
  const others = await keysOf(server);
  assert.ok(others.some((key) => key.includes("/rpc_meta/")) && others.some((key) => key.includes("/ram/")), `${others}`);
  await using dies = await startHolder({ master: master.rpcPort, metadata: server.url, name: "127.0.0.1" });
  assert.ok((await keysOf(server)).length > others.length);
  // A client is watched only after it was reached.
  const reached = performance.now() + 4_000;
  await until("some looks", () => (performance.now() > reached ? true : undefined));
  await dies.kill();
  await until("its records end", async () => ((await keysOf(server)).join() === others.join() ? true : undefined));
  assert.equal(await stays.put("k", "still there", { preferred_segment: await stays.name() }), 0);
});

void test("a record whose address was never reached stays, and so does memory that another client has described since", async () => {
  await using server = await startMetadataServer(["--metadata.gone_client_seconds=6"]);
  const [port = 0] = await freePorts(1);
  const record = (at: number) => JSON.stringify({ ip_or_host_name: "127.0.0.1", rpc_port: at });
  const put = (key: string, body: string) => server.fetch(key, { method: "PUT", body });
  await put("mooncake/rpc_meta/never", record(port));
  await put("mooncake/ram/never", "{}");
  let connections = 0;
  const listener = createServer((socket) => {
    connections++;
    socket.destroy();
  });
  await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
  const { port: open } = listener.address() as { port: number };
  await put("mooncake/rpc_meta/reached", record(open));
  await put("mooncake/ram/reached", '{"old":1}');
  // The second probe begins after the result of the first one is stored.
  await until("it was reached twice", () => (connections >= 2 ? true : undefined));
  await new Promise((resolve) => listener.close(resolve));
  await put("mooncake/ram/reached", '{"new":1}');
  await until("its own record ends", async () => ((await server.fetch("mooncake/rpc_meta/reached")).status === 404 ? true : undefined));
  assert.deepEqual(await keysOf(server), ["mooncake/ram/never", "mooncake/ram/reached", "mooncake/rpc_meta/never"]);
});
