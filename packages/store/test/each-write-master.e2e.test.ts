// The store's master with the disk full from its n-th write on, for each n: its log, the log's next file, and its snapshot.
import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { countedDiskNeeds, openCountedDisk } from "@svc/harness/counted-disk.ts";
import { type Changes, tryEach } from "@svc/harness/each-write.ts";
import { needs } from "@svc/harness/needs.ts";
import { freePorts } from "@svc/harness/ports.ts";
import { openServer } from "@svc/harness/server-process.ts";
import { until } from "@svc/harness/until.ts";
import { RpcClient } from "../src/rpc/client.ts";
import type { ReplicateConfig } from "../src/rpc/shapes.ts";

const MAIN = fileURLToPath(new URL("../src/master/main.ts", import.meta.url));
const STORE_DISK_FULL = -1503;
const clientID = "00000000-0000-0001-0000-000000000002";
const plain: ReplicateConfig = {
  replicas: 1n,
  nofReplicas: 0n,
  dfsReplicas: 0n,
  softPinAction: 0,
  softPinTtlMs: undefined,
  hardPin: false,
  preferredSegments: [],
  preferredSegment: "",
  preferredNofSegments: [],
  preferSameNode: false,
  dataType: 0,
  hostID: "",
  groupIDs: undefined,
};
/** No bytes are transferred, so the segment's memory may be anywhere. */
const segment = {
  id: "00000000-0000-0000-0000-000000000001",
  name: "holder:1",
  base: 1n << 40n,
  sizeBytes: 1n << 30n,
  endpoint: "holder:1",
  protocol: "tcp",
  hostID: "",
};
/** The number of puts that fill a log file, so that the next one begins, and a snapshot replaces both. */
const PUTS = 40;

for (const durability of ["process", "disk"])
  void test(
    `durability ${durability}: a full disk at any write of the log or the snapshot loses nothing acknowledged`,
    needs(...countedDiskNeeds),
    async (t) => {
      using disk = openCountedDisk();
      const [rpcPort = 0] = await freePorts(1);
      const bounds = ["--store.log_file_bytes=65536", "--store.snapshot_log_bytes=65536", "--client_ttl=600s", "--store.suspect_after_ms=600000"];
      const flags = [`--home=${disk.folder}`, `--rpc_port=${rpcPort}`, "--rpc_address=127.0.0.1", `--durability=${durability}`, "--log-level=error", ...bounds];
      await using server = await openServer([MAIN], flags, disk.env);
      let rpc = await RpcClient.connect("127.0.0.1", rpcPort);
      assert.ok((await rpc.call("MountSegment", segment, clientID)).ok);
      const again = {
        kill: async (signal: "SIGKILL") => {
          rpc.close();
          await server.kill(signal);
        },
        async start() {
          await server.start();
          rpc = await RpcClient.connect("127.0.0.1", rpcPort);
          // Remounts like a client after the master's restart: the holder's objects become readable again, even with a full disk.
          assert.ok((await rpc.call("ReMountSegment", [segment], clientID)).ok);
        },
      };
      const taken = (outcome: { readonly ok: boolean; readonly code?: number }) => {
        assert.ok(outcome.ok || outcome.code === STORE_DISK_FULL, `code ${outcome.code}`);
        return outcome.ok;
      };
      const put = async (key: string) =>
        taken(await rpc.call("PutStart", clientID, key, 10n, plain, "")) && taken(await rpc.call("PutEnd", clientID, { key, checksum: undefined }, 4, ""));
      const has = async (key: string) => {
        const outcome = await rpc.call("ExistKey", key, "");
        assert.ok(outcome.ok);
        return outcome.value;
      };
      const untilTaken = (key: string) => until("room for a put", async () => ((await put(key)) ? true : undefined));
      const longKey = (name: string) => `${name}-${"k".repeat(2000)}`;
      let made = 0;
      const changes: Changes = {
        async put() {
          await untilTaken(`room-${made++}`);
          const key = `put-${made++}`;
          return { act: () => put(key), isThere: () => has(key) };
        },
        async remove() {
          const key = `remove-${made++}`;
          await untilTaken(key);
          return { act: async () => taken(await rpc.call("Remove", key, true, "")), isThere: async () => !(await has(key)) };
        },
        // Each put of the batch is judged separately.
        async puts() {
          const round = made++;
          await untilTaken(`room-${round}`);
          const keys = Array.from({ length: PUTS }, (_, at) => longKey(`puts-${round}-${at}`));
          const kept = new Set<string>();
          return {
            async act() {
              for (const key of keys) if (await put(key)) kept.add(key);
              return kept.size === keys.length;
            },
            async isThere() {
              for (const key of keys) assert.equal(await has(key), kept.has(key), `${kept.size} of ${keys.length} puts were acknowledged`);
              return kept.size === keys.length;
            },
            async undo() {
              for (const key of kept) await until("room for a removal", async () => (taken(await rpc.call("Remove", key, true, "")) ? true : undefined));
            },
          };
        },
      };
      await tryEach((line) => t.diagnostic(line), { disk, server: again }, changes);
      rpc.close();
    },
  );
