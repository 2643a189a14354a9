// What a node keeps of Idempotency-Keys, without the rest of it: for histories of many nodes in one process.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { openStore } from "@svc/kit/database.ts";
import { type KeyedCreates, openKeyedCreates } from "@svc/sandbox/node/create-keys.ts";
import { type CreateKeys, createKeyTables, openCreateKeys } from "@svc/sandbox/records/create-keys.ts";

export type KeyedNode = {
  readonly keys: CreateKeys;
  /** A new process on the same home, which finds these other nodes in the deployment. */
  start(others: readonly string[]): KeyedCreates;
  close(): void;
};

export function openKeyedNode(home: string, name: string, wallMs: () => number): KeyedNode {
  mkdirSync(home);
  writeFileSync(join(home, "node-id"), name, { mode: 0o600 });
  const store = openStore(join(home, "keys.db"), { schema: { version: 1, tables: createKeyTables } });
  const keys = openCreateKeys(store);
  const clock = { monotonicMs: wallMs, wallMs };
  return {
    keys,
    start: (others) => openKeyedCreates({ home, membership: { deploymentID: "one", others }, records: { keys }, clock }),
    close: store.close,
  };
}
