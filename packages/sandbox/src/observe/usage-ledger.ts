// The durable sums of what sandboxes used, one row per sandbox and hour; they outlive their sandbox by the days of the setting.
import { addAmounts, NO_AMOUNTS, type UsageAmounts, type UsageGroup, type UsageRow, usageMembers } from "@svc/contract/usage.ts";
import type { Durability } from "@svc/kit/database.ts";
import type { Log } from "@svc/kit/log.ts";
import { openOrQuarantine } from "./damaged-store.ts";

/** The key, the tenant and the labels that a sandbox is accounted for. */
export type Owner = {
  /** The id of the key that created it, and its tenant; '' for the deployment's own key. */
  readonly keyID: string;
  readonly tenant: string;
  readonly metadata: Readonly<Record<string, string>>;
};

/** The counters of a sandbox up to which its usage is accounted; the next reading continues there, also in another process. */
export type Reading = {
  /** Identifies one start of its processes, whose counters begin at zero; "paused" while none run. */
  readonly life: string;
  readonly cpuNs: number;
  readonly inBytes: number;
  readonly outBytes: number;
  readonly memoryBytes: number;
  readonly diskBytes: number;
  readonly atMs: number;
};

export type UsageQuery = {
  readonly fromMs: number;
  readonly toMs: number;
  readonly by: UsageGroup;
  readonly label?: string | undefined;
  /** Only sandboxes of this tenant. */
  readonly tenant?: string | undefined;
  readonly after?: string | undefined;
  readonly limit: number;
};

export interface UsageLedger {
  /** Adds to an hour's sums in memory; `flush` writes them. */
  add(sandboxID: string, hourMs: number, amounts: Readonly<Partial<UsageAmounts>>): void;
  setReading(sandboxID: string, reading: Reading, owner: Owner): void;
  readingOf(sandboxID: string): Reading | undefined;
  /** Forgets the readings of sandboxes that this node does not have any more; their usage stays. */
  keepReadings(isKept: (sandboxID: string) => boolean): void;
  totals(sandboxID: string): UsageAmounts;
  rows(query: UsageQuery): UsageRow[];
  /** Writes what was added, all or nothing; what does not fit on a full disk stays in memory and is written later. */
  flush(): void;
  prune(): void;
  close(): void;
}

export type LedgerOptions = {
  readonly path: string;
  readonly durability: Durability;
  readonly keptMs: number;
  readonly log: Log;
  readonly wallMs: () => number;
  readonly maxRows?: number;
};

export const HOUR_MS = 3_600_000;
/** About 100 MB; the oldest hours go first. */
const MAX_ROWS = 500_000;

const columns = {
  cpuSeconds: "cpu_seconds",
  memoryGiBSeconds: "memory_gib_seconds",
  diskGiBSeconds: "disk_gib_seconds",
  networkInBytes: "network_in_bytes",
  networkOutBytes: "network_out_bytes",
  runningSeconds: "running_seconds",
  pausedSeconds: "paused_seconds",
} as const satisfies Record<keyof UsageAmounts, string>;
const names = usageMembers.map((member) => columns[member]);

const tables = `
  CREATE TABLE IF NOT EXISTS usage (
    sandbox_id TEXT NOT NULL, hour INTEGER NOT NULL, ${names.map((name) => `${name} REAL NOT NULL`).join(", ")}, PRIMARY KEY (sandbox_id, hour)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX IF NOT EXISTS usage_hour ON usage (hour);
  CREATE TABLE IF NOT EXISTS owners (sandbox_id TEXT PRIMARY KEY, key_id TEXT NOT NULL, tenant TEXT NOT NULL, metadata TEXT NOT NULL) STRICT, WITHOUT ROWID;
  CREATE TABLE IF NOT EXISTS readings (sandbox_id TEXT PRIMARY KEY, reading TEXT NOT NULL) STRICT, WITHOUT ROWID;
`;

const sums = usageMembers.map((member) => `sum(u.${columns[member]}) AS ${member}`).join(", ");
const values: Readonly<Record<UsageGroup, string>> = {
  key: "o.key_id",
  tenant: "o.tenant",
  sandbox: "u.sandbox_id",
  label: "coalesce((SELECT j.value FROM json_each(o.metadata) j WHERE j.key = $label), '')",
};

/** @throws HOST_UNSUITABLE when another node has the file open. */
export function openUsageLedger({ path, durability, keptMs, log, wallMs, maxRows = MAX_ROWS }: LedgerOptions): UsageLedger {
  const { store } = openOrQuarantine({ path, tables, durability, log, what: "usage" });
  const { db } = store;
  const added = names.map((name) => `${name} = ${name} + excluded.${name}`).join(", ");
  const upsert = db.prepare(
    `INSERT INTO usage (sandbox_id, hour, ${names.join(", ")}) VALUES (?, ?, ${names.map(() => "?").join(", ")}) ON CONFLICT DO UPDATE SET ${added}`,
  );
  const putOwner = db.prepare("INSERT OR REPLACE INTO owners (sandbox_id, key_id, tenant, metadata) VALUES (?, ?, ?, ?)");
  const putReading = db.prepare("INSERT OR REPLACE INTO readings (sandbox_id, reading) VALUES (?, ?)");
  const dropReading = db.prepare("DELETE FROM readings WHERE sandbox_id = ?");
  const total = db.prepare(`SELECT ${sums} FROM usage u WHERE u.sandbox_id = ?`);
  const count = db.prepare("SELECT count(*) AS count FROM usage");
  const oldest = db.prepare("SELECT hour FROM usage ORDER BY hour LIMIT 1 OFFSET ?");
  const dropHours = db.prepare("DELETE FROM usage WHERE hour < ?");
  const dropOwners = db.prepare(
    "DELETE FROM owners WHERE NOT EXISTS (SELECT 1 FROM usage u WHERE u.sandbox_id = owners.sandbox_id) AND sandbox_id NOT IN (SELECT sandbox_id FROM readings)",
  );

  const readings = new Map<string, Reading>();
  for (const row of db.prepare("SELECT * FROM readings").all()) readings.set(String(row["sandbox_id"]), JSON.parse(String(row["reading"])) as Reading);
  const known = new Set<string>();
  /** These maps have what is not in the file yet: sums by sandbox and hour, readings that changed, and owners that the file does not name. */
  const pending = new Map<string, Map<number, UsageAmounts>>();
  const changed = new Set<string>();
  const owners = new Map<string, Owner>();
  let isFailing = false;

  function flush(): void {
    if (pending.size === 0 && changed.size === 0) return;
    try {
      store.write(() => {
        for (const [sandboxID, { keyID, tenant, metadata }] of owners) putOwner.run(sandboxID, keyID, tenant, JSON.stringify(metadata));
        for (const [sandboxID, hours] of pending)
          for (const [hour, amounts] of hours) upsert.run(sandboxID, hour, ...usageMembers.map((member) => amounts[member]));
        for (const sandboxID of changed) {
          const reading = readings.get(sandboxID);
          if (reading === undefined) dropReading.run(sandboxID);
          else putReading.run(sandboxID, JSON.stringify(reading));
        }
      });
      owners.clear();
      pending.clear();
      changed.clear();
      isFailing = false;
    } catch (error) {
      if (!isFailing) log.error({ err: error, path }, "usage could not be written; it waits in memory, retrying every few seconds");
      isFailing = true;
    }
  }

  function prune(): void {
    try {
      const excess = Number(count.get()?.["count"] ?? 0) - maxRows;
      const beyond = excess > 0 ? Number(oldest.get(excess)?.["hour"] ?? 0) : 0;
      if (beyond > 0)
        log.warn({ path, maxRows, before: new Date(beyond).toISOString() }, "the file of usage has reached its bound: the oldest hours are removed");
      const dropped = dropHours.run(Math.max(wallMs() - keptMs, beyond));
      if (Number(dropped.changes) > 0) dropOwners.run();
    } catch (error) {
      log.warn({ err: error, path }, "expired usage could not be removed; retrying every hour");
    }
  }

  prune();
  return {
    add(sandboxID, hourMs, amounts) {
      let hours = pending.get(sandboxID);
      if (hours === undefined) pending.set(sandboxID, (hours = new Map()));
      hours.set(hourMs, addAmounts(hours.get(hourMs) ?? NO_AMOUNTS, amounts));
    },
    setReading(sandboxID, reading, owner) {
      readings.set(sandboxID, reading);
      changed.add(sandboxID);
      if (known.has(sandboxID)) return;
      known.add(sandboxID);
      owners.set(sandboxID, owner);
    },
    readingOf: (sandboxID) => readings.get(sandboxID),
    keepReadings(isKept) {
      for (const sandboxID of readings.keys()) {
        if (isKept(sandboxID)) continue;
        readings.delete(sandboxID);
        known.delete(sandboxID);
        changed.add(sandboxID);
      }
    },
    totals(sandboxID) {
      const written = total.get(sandboxID) as Record<keyof UsageAmounts, number | null> | undefined;
      let sum = addAmounts(NO_AMOUNTS, Object.fromEntries(usageMembers.map((member) => [member, written?.[member] ?? 0])));
      for (const amounts of pending.get(sandboxID)?.values() ?? []) sum = addAmounts(sum, amounts);
      return sum;
    },
    rows({ fromMs, toMs, by, label = "", tenant, after, limit }) {
      flush();
      const value = values[by];
      const conditions = [
        "u.hour >= $from AND u.hour < $to",
        ...(tenant === undefined ? [] : ["o.tenant = $tenant"]),
        ...(after === undefined ? [] : [`${value} > $after`]),
      ];
      const query = db.prepare(
        `SELECT ${value} AS value, count(DISTINCT u.sandbox_id) AS sandboxes, ${sums} FROM usage u JOIN owners o USING (sandbox_id)
         WHERE ${conditions.join(" AND ")} GROUP BY 1 ORDER BY 1 LIMIT $limit`,
      );
      const found = query.all({
        from: fromMs,
        to: toMs,
        limit,
        ...(by === "label" ? { label } : {}),
        ...(tenant === undefined ? {} : { tenant }),
        ...(after === undefined ? {} : { after }),
      });
      return found.map((row) => ({ ...row }) as UsageRow);
    },
    flush,
    prune,
    close() {
      flush();
      store.close();
    },
  };
}
