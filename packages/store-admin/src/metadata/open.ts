// Opens the storage of the admin server's records that a setting names.
import { fail } from "@svc/contract/failures.ts";
import { openEmbedded } from "./embedded.ts";
import { openEtcdRecords } from "./etcd.ts";
import type { Records } from "./records.ts";
import { openRedisRecords } from "./redis.ts";

const EXPECTED = "expected embedded, etcd://HOST:PORT[;HOST:PORT] or redis://[USER:PASSWORD@]HOST:PORT[/DATABASE]";
const HOST_PORT = /^(\[[0-9a-fA-F:]+\]|[^:\s/@;]+):\d{1,5}$/;

export type RecordsSetting = { readonly setting: string; readonly text: string; readonly folder: string; readonly namespace: string };

/** @throws SETTING_INVALID that names the setting but never a password. */
export function openRecords({ setting, text, folder, namespace }: RecordsSetting): Records {
  const prefix = `svc-store-admin/${namespace}`;
  if (text === "embedded") return openEmbedded(folder);
  if (text.startsWith("etcd://")) {
    const hosts = text.slice("etcd://".length).split(/[;,]/);
    if (!hosts.every((host) => HOST_PORT.test(host))) fail("SETTING_INVALID", `setting ${setting}: ${EXPECTED}, got ${JSON.stringify(text)}`);
    return openEtcdRecords(
      hosts.map((host) => `http://${host}`),
      `${prefix}/`,
    );
  }
  if (text.startsWith("redis://") && URL.canParse(text)) {
    const { hostname, port, username, password, pathname } = new URL(text);
    const database = /^\/?(\d{0,5})$/.exec(pathname)?.[1];
    if (database !== undefined && hostname !== "")
      return openRedisRecords(
        {
          host: hostname.replace(/^\[|\]$/g, ""),
          port: Number(port || 6379),
          username: decodeURIComponent(username),
          password: decodeURIComponent(password),
          database: Number(database || 0),
        },
        prefix,
      );
  }
  return fail("SETTING_INVALID", `setting ${setting}: ${EXPECTED}`);
}
