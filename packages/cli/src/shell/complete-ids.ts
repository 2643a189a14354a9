// Completes ids in a shell: those that the server knows now, or none if it does not answer in time.
import { SvcClient } from "@svc/contract/client.ts";
import { findAccess } from "../access/access.ts";
import { collect } from "../output/for-each.ts";
import type { IDKind } from "./complete-ids-kinds.ts";

/** Completion must be fast, since a person is waiting for it. */
const BOUND_MS = 3000;
const MAX_OFFERED = 200;

const idsOf: Readonly<Record<IDKind, (client: SvcClient) => Promise<string[]>>> = {
  sandboxes: async (client) => (await collect(client.list())).map(({ sandboxID }) => sandboxID),
  templates: async (client) => (await collect(client.templates.list())).flatMap(({ names, templateID }) => (names.length > 0 ? names : [templateID])),
  snapshots: async (client) => (await collect(client.snapshots({}))).flatMap(({ names, snapshotID }) => (names.length > 0 ? names : [snapshotID])),
  volumes: async (client) => (await client.volumes.list()).map(({ name }) => name),
  nodes: async (client) => (await client.nodes()).map(({ id }) => id),
};

export async function completeIDs(kinds: readonly IDKind[]): Promise<number> {
  // A shell has no way to show an error during completion; running the command will report it.
  const ids = await Promise.race([found(kinds).catch(() => []), new Promise<string[]>((resolve) => setTimeout(() => resolve([]), BOUND_MS).unref())]);
  // Names are chosen by others, so only those without special characters are given to the shell.
  for (const id of ids.filter((each) => /^[\w.:-]+$/.test(each)).slice(0, MAX_OFFERED)) process.stdout.write(`${id}\n`);
  return 0;
}

async function found(kinds: readonly IDKind[]): Promise<string[]> {
  const { url, apiKey } = await findAccess({});
  if (apiKey === undefined) return [];
  const client = new SvcClient({ baseURL: url, apiKey });
  return (await Promise.all(kinds.map((kind) => idsOf[kind](client)))).flat();
}
