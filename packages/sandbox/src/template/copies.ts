// Fetched builds of other nodes' templates: sandboxes start from them here, and the origin node handles all other requests.
import { fail } from "@svc/contract/failures.ts";
import { z } from "zod";
import type { BuildResult } from "./build-record.ts";
import type { Database } from "./database.ts";

export type Copy = {
  readonly buildID: string;
  readonly templateID: string;
  readonly name: string;
  readonly createdAtMs: number;
  /** The node that built it, if known. */
  readonly originNodeID?: string | undefined;
  readonly result: BuildResult;
};

export interface Copies {
  get(buildID: string): Copy | undefined;
  all(): Copy[];
  /** Returns the copies of a template, by its id or name. */
  of(templateIDOrName: string): Copy[];
  /** @throws TOO_MANY_REQUESTS, DISK_FULL. */
  add(copy: Copy): void;
  remove(buildID: string): void;
}

const MAX_COPIES = 10_000;

const readable = z.looseObject({
  buildID: z.string(),
  templateID: z.string(),
  name: z.string(),
  createdAtMs: z.number(),
  result: z.looseObject({ chain: z.looseObject({ layers: z.array(z.string()) }), env: z.record(z.string(), z.string()), memoryMB: z.number() }),
});

/** All rows are also kept in memory. A row that cannot be read is deleted, since the build can be fetched again. */
export function openCopies(db: Database): Copies {
  // I48
  const copies = new Map<string, Copy>();
  for (const row of db.all("SELECT build_id, record FROM copies")) {
    const copy = read(row["record"] as string);
    if (copy === undefined) db.remove("DELETE FROM copies WHERE build_id = ?", row["build_id"] as string);
    else copies.set(copy.buildID, copy);
  }
  return {
    get: (buildID) => copies.get(buildID),
    all: () => [...copies.values()],
    of: (asked) => [...copies.values()].filter(({ templateID, name }) => templateID === asked || name === asked),
    add(copy) {
      if (copies.size >= MAX_COPIES) fail("TOO_MANY_REQUESTS", `this node holds ${MAX_COPIES} builds of other nodes' templates, the maximum; delete some`);
      db.run("INSERT INTO copies VALUES (?, ?) ON CONFLICT (build_id) DO UPDATE SET record = excluded.record", copy.buildID, JSON.stringify(copy));
      copies.set(copy.buildID, copy);
    },
    remove(buildID) {
      db.remove("DELETE FROM copies WHERE build_id = ?", buildID);
      copies.delete(buildID);
    },
  };
}

function read(record: string): Copy | undefined {
  try {
    return readable.parse(JSON.parse(record)) as unknown as Copy;
  } catch {
    return undefined;
  }
}
