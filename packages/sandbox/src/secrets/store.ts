// The secrets of a home: one file with each value encrypted under a key that is not in it. What cannot be read is refused, never overwritten.
import { randomBytes } from "node:crypto";
import { asFailure, Failure, fail, isDiskFull } from "@svc/contract/failures.ts";
import { SECRET_ID_PREFIX, type Secret } from "@svc/contract/secrets.ts";
import { readSecretFile, replaceSecretFile } from "@svc/kit/secret.ts";
import { z } from "zod";
import { seal, unseal } from "./seal.ts";

export interface SecretStore {
  create(name: string, value: string, metadata: Readonly<Record<string, string>>): Secret;
  /** Returns one page by name, and the token of the next one. */
  page(limit: number, after: string | undefined): { items: Secret[]; next: string | undefined };
  get(asked: string): Secret;
  update(asked: string, value: string, metadata: Readonly<Record<string, string>> | undefined): Secret;
  delete(asked: string): void;
  /** Returns the present value of the secret with this name. */
  value(name: string): string;
}

export type SecretStoreOptions = {
  readonly path: string;
  /** The key of the deployment, from another file or from etcd. */
  readonly key: string;
  readonly maxSecrets: number;
  /** Called after each change, so that values in use are read again. */
  readonly onChange: () => void;
  readonly now: () => number;
};

const ID_BYTES = 12;
const MAX_FILE_BYTES = 64 * 1024 * 1024;

const entry = z.object({
  secretID: z.string().startsWith(SECRET_ID_PREFIX),
  name: z.string().min(1),
  currentVersion: z.int().min(1),
  metadata: z.record(z.string(), z.string()),
  createdAt: z.string(),
  updatedAt: z.string(),
  sealed: z.string(),
});
const file = z.object({ version: z.literal(1), secrets: z.array(entry) });
type Entry = z.output<typeof entry>;

/** Every method @throws SECRETS_DAMAGED while the file cannot be read or was encrypted under another key. */
export function openSecretStore({ path, key, maxSecrets, onChange, now }: SecretStoreOptions): SecretStore {
  let entries: ReadonlyMap<string, Entry> | undefined;
  /** Binds a value to its secret and version: none can be put in another's place. */
  const purposeOf = ({ secretID, currentVersion }: Pick<Entry, "secretID" | "currentVersion">) => `egress-secret:${secretID}:${currentVersion}`;

  /** Read at each call until it can be read, so that a repaired file needs no restart. */
  function all(): ReadonlyMap<string, Entry> {
    entries ??= read();
    return entries;
  }

  function read(): ReadonlyMap<string, Entry> {
    let found: Entry[];
    try {
      const text = readSecretFile(path, MAX_FILE_BYTES);
      found = text === undefined ? [] : file.parse(JSON.parse(text)).secrets;
    } catch (error) {
      const why = error instanceof SyntaxError || error instanceof z.ZodError ? "it is not what this version writes" : asFailure(error).message;
      return damaged(`${why}; restore it from a backup, or move it away to begin with no secrets`, error);
    }
    for (const each of found) {
      if (unseal(each.sealed, key, purposeOf(each)) !== undefined) continue;
      damaged(
        `the value of '${each.name}' does not open with this deployment's secret; restore both from one backup, or move the file away and create the secrets again`,
      );
    }
    return new Map(found.map((each) => [each.name, each]));
  }

  function damaged(what: string, cause?: unknown): never {
    throw new Failure("SECRETS_DAMAGED", `the file of secrets ${path} cannot be used: ${what}. Nothing in it was changed`, { cause });
  }

  function write(next: ReadonlyMap<string, Entry>): void {
    try {
      replaceSecretFile(path, JSON.stringify({ version: 1, secrets: [...next.values()] }));
    } catch (error) {
      if (isDiskFull(error)) throw new Failure("DISK_FULL", "the disk of the node is full: the secret was not changed", { cause: error });
      throw error;
    }
    entries = next;
    onChange();
  }

  function find(asked: string): Entry {
    const name = asked.toLowerCase();
    const found = all().get(name) ?? [...all().values()].find(({ secretID }) => secretID === name);
    return found ?? fail("SECRET_NOT_FOUND", `secret '${asked}' was not found; \`svc secret list\` lists them`);
  }

  function shown({ sealed: _, ...rest }: Entry): Secret {
    return rest;
  }

  return {
    create(name, value, metadata) {
      if (all().has(name)) fail("SECRET_EXISTS", `secret '${name}' exists already; update it (svc secret set ${name}), or choose another name`);
      if (all().size >= maxSecrets) fail("TOO_MANY_REQUESTS", `there are ${all().size} secrets, the maximum (egress.max_secrets); delete some`);
      const at = new Date(now()).toISOString();
      const made = { secretID: `${SECRET_ID_PREFIX}${randomBytes(ID_BYTES).toString("hex")}`, name, currentVersion: 1, metadata, createdAt: at, updatedAt: at };
      const kept: Entry = { ...made, sealed: seal(value, key, purposeOf(made)) };
      write(new Map([...all(), [name, kept]]));
      return shown(kept);
    },
    page(limit, after) {
      const from = after === undefined ? undefined : Buffer.from(after, "base64url").toString("utf8");
      const sorted = [...all().values()].sort((a, b) => (a.name < b.name ? -1 : 1)).filter(({ name }) => from === undefined || name > from);
      const items = sorted.slice(0, limit);
      const last = items.at(-1);
      return { items: items.map(shown), next: sorted.length > items.length && last !== undefined ? Buffer.from(last.name).toString("base64url") : undefined };
    },
    get: (asked) => shown(find(asked)),
    update(asked, value, metadata) {
      const before = find(asked);
      const changed = { ...before, currentVersion: before.currentVersion + 1, metadata: metadata ?? before.metadata, updatedAt: new Date(now()).toISOString() };
      const kept = { ...changed, sealed: seal(value, key, purposeOf(changed)) };
      write(new Map([...all(), [before.name, kept]]));
      return shown(kept);
    },
    delete(asked) {
      const { name } = find(asked);
      write(new Map([...all()].filter(([each]) => each !== name)));
    },
    value(name) {
      const found = find(name);
      return unseal(found.sealed, key, purposeOf(found)) ?? damaged(`the value of '${name}' does not open with this deployment's secret`);
    },
  };
}
