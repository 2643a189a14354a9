// The secrets of a home: one file with each value encrypted under a key that is not in it. What cannot be read is refused, never overwritten.
import { randomBytes } from "node:crypto";
import { asFailure, Failure, fail, isDiskFull } from "@svc/contract/failures.ts";
import {
  isLaterSecret,
  MAX_SECRET_RECORDS,
  SECRET_ID_PREFIX,
  type Secret,
  type SecretRecord,
  type SecretStamp,
  secretLimits,
  stampOf,
} from "@svc/contract/secrets.ts";
import { DEPLOYMENT, type Principal, sees, tenantOf } from "@svc/kit/keys/principal.ts";
import { readSecretFile, replaceSecretFile } from "@svc/kit/secret.ts";
import { z } from "zod";
import { seal, unseal } from "./seal.ts";

export interface SecretStore {
  /** Makes a secret of the principal's tenant. */
  create(name: string, value: string, metadata: Readonly<Record<string, string>>, principal?: Principal): Secret;
  /** Returns one page by name of what the principal sees, and the token of the next one. */
  page(limit: number, after: string | undefined, principal?: Principal): { items: Secret[]; next: string | undefined };
  /** Finds one by its id, or by its name in the principal's tenant. */
  get(asked: string, principal?: Principal): Secret;
  update(asked: string, value: string, metadata: Readonly<Record<string, string>> | undefined, principal?: Principal): Secret;
  delete(asked: string, principal?: Principal): void;
  /** Returns the present value of the secret with this name or id in this tenant alone; undefined: the deployment itself. */
  value(name: string, tenant?: string): string;
  /** One per name, including those of deleted secrets. */
  stamps(): SecretStamp[];
  /** Returns the records with these names, their values sealed for the other nodes of the deployment. */
  records(names: readonly string[]): SecretRecord[];
  /** Keeps the records that are later than its own; returns the names of those that it cannot open. */
  settle(records: readonly SecretRecord[]): string[];
}

export type SecretStoreOptions = {
  readonly path: string;
  /** The key of the deployment, from another file or from etcd. */
  readonly key: string;
  /** The token seed, which the nodes behind a gateway have in common even where their deployment secrets differ. */
  readonly seed: string;
  readonly maxSecrets: number;
  /** Called after each change, so that values in use are read again. */
  readonly onChange: () => void;
  readonly now: () => number;
};

const ID_BYTES = 12;
const WRITE_ID_BYTES = 8;
const MAX_FILE_BYTES = 64 * 1024 * 1024;
/** A node that was away for longer than this may bring a deleted secret back. */
const DELETED_KEPT_MS = 30 * 24 * 3_600_000;

const entry = z.object({
  secretID: z.string().startsWith(SECRET_ID_PREFIX),
  name: z.string().min(1),
  currentVersion: z.int().min(1),
  metadata: z.record(z.string(), z.string()),
  createdAt: z.string(),
  updatedAt: z.string(),
  /** Absent where an earlier version wrote the entry. */
  writeID: z.string().default(""),
  sealed: z.string(),
});
/** A member of its own, which earlier versions ignore. */
const deletedEntry = entry.omit({ sealed: true });
const file = z.object({ version: z.literal(1), secrets: z.array(entry), deleted: z.array(deletedEntry).default([]) });
type Entry = z.output<typeof entry>;
type Deleted = z.output<typeof deletedEntry>;
type Entries = { readonly living: ReadonlyMap<string, Entry>; readonly deleted: ReadonlyMap<string, Deleted> };

const sealedOf = (each: Entry | Deleted): string | null => ("sealed" in each ? (each as Entry).sealed : null);

/** No name has a slash, so that a tenant's secrets are apart from all others, also on nodes of an earlier version. */
const fullName = (name: string, tenant: string | undefined) => (tenant === undefined ? name : `${tenant}/${name}`);
function ownerOf({ name }: Pick<Entry, "name">): { readonly name: string; readonly tenant: string | undefined } {
  const [tenant, own] = name.split("/");
  return own === undefined ? { name, tenant: undefined } : { name: own, tenant };
}

/** Every method @throws SECRETS_DAMAGED while the file cannot be read or was encrypted under another key. */
export function openSecretStore({ path, key, seed, maxSecrets, onChange, now }: SecretStoreOptions): SecretStore {
  let entries: Entries | undefined;
  /** Binds a value to its secret and version: none can be put in another's place. */
  const purposeOf = ({ secretID, currentVersion }: Pick<Entry, "secretID" | "currentVersion">) => `egress-secret:${secretID}:${currentVersion}`;
  const sharedPurposeOf = (each: Pick<Entry, "secretID" | "currentVersion">) => `shared-${purposeOf(each)}`;

  /** Read at each call until it can be read, so that a repaired file needs no restart. */
  function all(): Entries {
    entries ??= read();
    return entries;
  }

  function read(): Entries {
    let found: z.output<typeof file>;
    try {
      const text = readSecretFile(path, MAX_FILE_BYTES);
      found = text === undefined ? { version: 1, secrets: [], deleted: [] } : file.parse(JSON.parse(text));
    } catch (error) {
      const why = error instanceof SyntaxError || error instanceof z.ZodError ? "it is not what this version writes" : asFailure(error).message;
      return damaged(`${why}; restore it from a backup, or move it away to begin with no secrets`, error);
    }
    for (const each of found.secrets) {
      if (unseal(each.sealed, key, purposeOf(each)) !== undefined) continue;
      damaged(
        `the value of '${each.name}' does not open with this deployment's secret; restore both from one backup, or move the file away and create the secrets again`,
      );
    }
    return { living: new Map(found.secrets.map((each) => [each.name, each])), deleted: new Map(found.deleted.map((each) => [each.name, each])) };
  }

  function damaged(what: string, cause?: unknown): never {
    throw new Failure("SECRETS_DAMAGED", `the file of secrets ${path} cannot be used: ${what}. Nothing in it was changed`, { cause });
  }

  /** Writes these entries over those with the same names. */
  function write(changes: readonly (Entry | Deleted)[]): void {
    const living = new Map(all().living);
    const deleted = new Map(all().deleted);
    for (const each of changes) {
      living.delete(each.name);
      deleted.delete(each.name);
      if ("sealed" in each) living.set(each.name, each);
      else deleted.set(each.name, each);
    }
    const youngest = [...deleted.values()].sort((a, b) => Date.parse(b.updatedAt) - Date.parse(a.updatedAt));
    for (const [at, each] of youngest.entries())
      if (at >= MAX_SECRET_RECORDS / 2 || now() - Date.parse(each.updatedAt) > DELETED_KEPT_MS) deleted.delete(each.name);
    try {
      replaceSecretFile(path, JSON.stringify({ version: 1, secrets: [...living.values()], deleted: [...deleted.values()] }));
    } catch (error) {
      if (isDiskFull(error)) throw new Failure("DISK_FULL", "the disk of the node is full: the secret was not changed", { cause: error });
      throw error;
    }
    entries = { living, deleted };
    onChange();
  }

  /** Finds one by its name in the tenant, or by its id where the tenant that it belongs to is one of those that count. */
  function find(asked: string, tenant: string | undefined, counts: (owner: string | undefined) => boolean): Entry {
    const { living } = all();
    const name = asked.toLowerCase();
    const byName = name.includes("/") ? undefined : living.get(fullName(name, tenant));
    const found = byName ?? [...living.values()].find(({ secretID }) => secretID === name);
    if (found !== undefined && counts(ownerOf(found).tenant)) return found;
    return fail("SECRET_NOT_FOUND", `secret '${asked}' was not found; \`svc secret list\` lists them`);
  }
  const seen = (asked: string, principal: Principal) => find(asked, tenantOf(principal), (owner) => sees(principal, owner));

  /** A change is always later than the one before, whatever the clock says. */
  function changeAfter(before: Pick<Entry, "updatedAt"> | undefined): Pick<Entry, "updatedAt" | "writeID"> {
    const atMs = Math.max(now(), before === undefined ? 0 : Date.parse(before.updatedAt) + 1);
    return { updatedAt: new Date(atMs).toISOString(), writeID: randomBytes(WRITE_ID_BYTES).toString("hex") };
  }

  function shown({ sealed: _, writeID: __, ...rest }: Entry): Secret {
    const { name, tenant } = ownerOf(rest);
    return { ...rest, name, ...(tenant === undefined ? {} : { tenant }) };
  }

  function opened(found: Entry): string {
    return unseal(found.sealed, key, purposeOf(found)) ?? damaged(`the value of '${found.name}' does not open with this deployment's secret`);
  }

  function recordOf(each: Entry | Deleted): SecretRecord {
    return { ...each, sealed: "sealed" in each ? seal(opened(each), seed, sharedPurposeOf(each)) : null };
  }

  return {
    create(asked, value, metadata, principal = DEPLOYMENT) {
      const { living, deleted } = all();
      const name = fullName(asked, tenantOf(principal));
      if (name.length > secretLimits.nameLength)
        fail("INVALID_REQUEST", `name: expected a shorter one: with the tenant's name it may have ${secretLimits.nameLength - 1} characters`);
      if (living.has(name)) fail("SECRET_EXISTS", `secret '${asked}' exists already; update it (svc secret set ${asked}), or choose another name`);
      if (living.size >= maxSecrets) fail("TOO_MANY_REQUESTS", `there are ${living.size} secrets, the maximum (egress.max_secrets); delete some`);
      const change = changeAfter(deleted.get(name));
      const secretID = `${SECRET_ID_PREFIX}${randomBytes(ID_BYTES).toString("hex")}`;
      const made = { secretID, name, currentVersion: 1, metadata, createdAt: change.updatedAt, ...change };
      const kept: Entry = { ...made, sealed: seal(value, key, purposeOf(made)) };
      write([kept]);
      return shown(kept);
    },
    page(limit, after, principal = DEPLOYMENT) {
      const from = after === undefined ? undefined : Buffer.from(after, "base64url").toString("utf8");
      const own = [...all().living.values()].filter((each) => sees(principal, ownerOf(each).tenant));
      const sorted = own.sort((a, b) => (a.name < b.name ? -1 : 1)).filter(({ name }) => from === undefined || name > from);
      const items = sorted.slice(0, limit);
      const last = items.at(-1);
      return { items: items.map(shown), next: sorted.length > items.length && last !== undefined ? Buffer.from(last.name).toString("base64url") : undefined };
    },
    get: (asked, principal = DEPLOYMENT) => shown(seen(asked, principal)),
    update(asked, value, metadata, principal = DEPLOYMENT) {
      const before = seen(asked, principal);
      const changed = { ...before, currentVersion: before.currentVersion + 1, metadata: metadata ?? before.metadata, ...changeAfter(before) };
      const kept = { ...changed, sealed: seal(value, key, purposeOf(changed)) };
      write([kept]);
      return shown(kept);
    },
    delete(asked, principal = DEPLOYMENT) {
      const { sealed: _, ...before } = seen(asked, principal);
      write([{ ...before, ...changeAfter(before) }]);
    },
    value: (name, tenant) => opened(find(name, tenant, (owner) => owner === tenant)),
    stamps() {
      const { living, deleted } = all();
      return [...living.values(), ...deleted.values()].map((each) => stampOf({ ...each, sealed: sealedOf(each) }));
    },
    records(names) {
      const { living, deleted } = all();
      return names.flatMap((name) => living.get(name) ?? deleted.get(name) ?? []).map(recordOf);
    },
    settle(records) {
      const { living, deleted } = all();
      const refused: string[] = [];
      const later: (Entry | Deleted)[] = [];
      for (const { sealed, ...record } of records) {
        const own = living.get(record.name) ?? deleted.get(record.name);
        const ownStamp = own === undefined ? undefined : stampOf({ ...own, sealed: sealedOf(own) });
        if (!isLaterSecret(stampOf({ ...record, sealed }), ownStamp)) continue;
        const value = sealed === null ? null : unseal(sealed, seed, sharedPurposeOf(record));
        if (value === undefined) refused.push(record.name);
        else later.push(value === null ? record : { ...record, sealed: seal(value, key, purposeOf(record)) });
      }
      if (later.length > 0) write(later);
      return refused;
    },
  };
}
