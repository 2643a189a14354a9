// The part of a node that handles Idempotency-Keys, alone, so that one process can simulate many nodes.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { openStore } from "@svc/kit/database.ts";
import { type KeyedCreates, openKeyedCreates } from "@svc/sandbox/node/verbs/create-keys.ts";
import { type CreateKeys, createKeyTables, openCreateKeys } from "@svc/sandbox/records/create-keys.ts";

export type KeyedNode = {
  readonly keys: CreateKeys;
  /** Starts a new process on the same home, which finds these other nodes in the deployment. */
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
