// The storage of test devices: a folder, or a bucket of an S3-compatible server, with the same ways to inspect and damage it.
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { needs } from "@svc/harness/needs.ts";
import { type ObjectServer, startObjectServer } from "@svc/harness/object-server.ts";
import { openS3Objects } from "@svc/kit/objects/s3.ts";
import { credentialsFrom } from "@svc/kit/objects/s3-credentials.ts";

export type ColdStorage = AsyncDisposable & {
  readonly kind: "ssd" | "s3";
  readonly target: object;
  readonly root: string;
  /** The flags that an owner needs to reach the storage. */
  readonly flags: readonly string[];
  readonly env: NodeJS.ProcessEnv;
  /** The numbers of a device's complete files, in hexadecimal. */
  filesIn(id: string): Promise<string[]>;
  /** Reads the file at a locator or an encoded path. */
  read(path: string): Promise<Buffer>;
  /** Flips one bit of a file, `fromEnd` bytes before its end. */
  damage(id: string, file: string, fromEnd: number): Promise<void>;
  /** Creates a file that no object refers to; returns its name after quarantine. */
  plantOrphan(id: string): Promise<string>;
  /** Creates an incomplete file, as an owner that was killed leaves it. */
  plantHalf(id: string): Promise<string>;
};

export type OpenStorage = { readonly what: string; readonly skip: { skip: string | false }; open(): Promise<ColdStorage> };

const ORPHAN = "0fffff00";
const HALF = "0fffff01";
const OLD_EPOCH = "00000000000001";

/** Creates a folder for the files of devices. */
export function makeFolder(): { readonly path: string } & AsyncDisposable {
  const path = makeHome();
  return {
    path,
    async [Symbol.asyncDispose]() {
      removeHome(path);
    },
  };
}

export const inFolder: OpenStorage = {
  what: "a folder",
  skip: { skip: false },
  async open() {
    const folder = makeFolder();
    const root = folder.path;
    return {
      kind: "ssd",
      target: { type: "directory", path: root },
      root,
      flags: [],
      env: {},
      filesIn: async (id) => readdirSync(join(root, id)).filter((name) => /^[0-9a-f]{8}$/.test(name)),
      read: async (path) => readFileSync(join(root, path)),
      async damage(id, file, fromEnd) {
        const bytes = readFileSync(join(root, id, file));
        flip(bytes, fromEnd);
        writeFileSync(join(root, id, file), bytes);
      },
      async plantOrphan(id) {
        writeFileSync(join(root, id, ORPHAN), "no object");
        return ORPHAN;
      },
      async plantHalf(id) {
        mkdirSync(join(root, id, "pending"), { recursive: true });
        writeFileSync(join(root, id, "pending", HALF), "half");
        return HALF;
      },
      [Symbol.asyncDispose]: () => folder[Symbol.asyncDispose](),
    };
  },
};

export const bucketStorage = async (server: ObjectServer, endpoint = server.endpoint): Promise<ColdStorage> => {
  const prefix = "some/prefix";
  const credentials = credentialsFrom("", server.env);
  const url = `s3://${server.bucket}/${prefix}`;
  const at = { url, bucket: server.bucket, prefix, endpoint: server.endpoint, region: "us-east-1", pathStyle: true, concurrency: 4, credentials };
  const objects = await openS3Objects(at);
  const get = async (key: string) => (await objects.get(key, 2 ** 24)) ?? Promise.reject(new Error(`${key} is not there`));
  async function named(key: string): Promise<string> {
    for await (const each of objects.list(key)) return each.key;
    return key;
  }
  return {
    kind: "s3",
    target: { type: "s3", url },
    root: url,
    flags: [`--store_service.cold_tier_s3_endpoint=${endpoint}`],
    env: server.env,
    async filesIn(id) {
      const files: string[] = [];
      for await (const { key } of objects.list(`${id}/objects/`)) if (!/\.\d+$/.test(key)) files.push(key.slice(`${id}/objects/`.length).slice(0, 8));
      return files.sort();
    },
    read: async (path) => get(await named(path)),
    async damage(id, file, fromEnd) {
      const key = await named(`${id}/objects/${file}`);
      const bytes = await get(key);
      flip(bytes, fromEnd);
      await objects.put(key, bytes);
    },
    async plantOrphan(id) {
      await objects.put(`${id}/objects/${ORPHAN}-${OLD_EPOCH}`, Buffer.from("no object"));
      return `${ORPHAN}-${OLD_EPOCH}`;
    },
    async plantHalf(id) {
      await objects.put(`${id}/pending/${HALF}-${OLD_EPOCH}`, Buffer.alloc(0));
      await objects.put(`${id}/objects/${HALF}-${OLD_EPOCH}.1`, Buffer.from("half"));
      return `${HALF}-${OLD_EPOCH}.1`;
    },
    async [Symbol.asyncDispose]() {
      await objects.close();
      await server[Symbol.asyncDispose]();
    },
  };
};

export const inBucket: OpenStorage = { what: "a bucket", skip: needs("object-server"), open: async () => bucketStorage(await startObjectServer()) };

function flip(bytes: Buffer, fromEnd: number): void {
  const at = Math.max(0, bytes.length - fromEnd);
  bytes.writeUInt8(bytes.readUInt8(at) ^ 1, at);
}
