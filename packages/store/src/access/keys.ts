// The access keys of a store server: read from a file and the environment, and presented by a request as a bearer token.
import { Failure, fail } from "@svc/contract/failures.ts";
import { isReadByOthers, readSecretFile, SecretMap } from "@svc/kit/secret.ts";

const MAX_FILE_BYTES = 2 ** 20;
const TOKEN = /^[\x21-\x7e]{16,512}$/;
const TOKEN_RULE = "a token has 16 to 512 visible ASCII characters";
const MAX_TENANT_BYTES = 1024;

/** A token allows either everything or one tenant's keys. A tenant is a string of bytes, one per character, as on the wire. */
export type Key = { readonly tenant: string | undefined };
export type AccessKeys = { readonly find: (token: string | undefined) => Key | undefined };

export type KeySource = {
  readonly setting: string;
  /** The path of the key file; empty for none. */
  readonly file: string;
  /** The name of the environment variable with one unrestricted token. */
  readonly variable: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The reason why a tenant's key makes no sense on this server; undefined where it does. */
  readonly noTenants?: string | undefined;
  warn(message: string): void;
};

/** Returns undefined if no key is configured: access control is then off. @throws SETTING_INVALID, naming the setting and never a token. */
export function openKeys(source: KeySource): AccessKeys | undefined {
  const { setting, file, variable, env } = source;
  const keys = new SecretMap<Key>();
  const single = env[variable] ?? "";
  if (single !== "") {
    if (!TOKEN.test(single)) fail("SETTING_INVALID", `environment variable ${variable}: ${TOKEN_RULE}`);
    keys.add(single, { tenant: undefined });
  }
  if (file !== "") {
    if (isReadByOthers(file)) source.warn(`setting ${setting}: other users of this machine can read ${file}; chmod 600 ${file}`);
    const before = keys.size;
    for (const [at, line] of readNamed(setting, file).split("\n").entries()) {
      const [token, tenant, more] = line.trim().split(/\s+/);
      if (token === undefined || token === "" || token.startsWith("#")) continue;
      const wrong = (why: string) => fail("SETTING_INVALID", `setting ${setting}: ${file}, line ${at + 1}: ${why}`);
      if (!TOKEN.test(token)) wrong(TOKEN_RULE);
      if (more !== undefined) wrong("expected TOKEN, or TOKEN and a tenant");
      if (tenant !== undefined && source.noTenants !== undefined) wrong(`a key of one tenant: ${source.noTenants}`);
      if (tenant !== undefined && Buffer.byteLength(tenant) > MAX_TENANT_BYTES) wrong(`a tenant's name has at most ${MAX_TENANT_BYTES} bytes`);
      if (!keys.add(token, { tenant: tenant === undefined ? undefined : Buffer.from(tenant).toString("latin1") })) wrong("this token is given twice");
    }
    if (keys.size === before) fail("SETTING_INVALID", `setting ${setting}: ${file} has no key; expected lines of TOKEN [tenant]`);
  }
  return keys.size === 0 ? undefined : { find: (token) => keys.get(token) };
}

/**
 * Returns the token that a client presents: the first one in the file, or that of
 * the environment without a file. @throws SETTING_INVALID where the file has none.
 */
export function tokenFrom(setting: string, file: string, env: Readonly<Record<string, string | undefined>>): string | undefined {
  const text = file === "" ? (env["SVC_STORE_TOKEN"] ?? "") : readNamed(setting, file);
  const lines = text.split("\n").map((line) => line.trim());
  const token = lines.find((line) => line !== "" && !line.startsWith("#"))?.split(/\s+/)[0];
  if (token === undefined && file === "") return undefined;
  if (token !== undefined && TOKEN.test(token)) return token;
  return fail("SETTING_INVALID", `${file === "" ? "environment variable SVC_STORE_TOKEN" : `${setting}: ${file}`}: ${TOKEN_RULE}`);
}

/** Returns TOKEN of `Authorization: Bearer TOKEN`. */
export const bearerOf = (header: string | undefined): string | undefined => /^Bearer +(\S+)$/i.exec(header ?? "")?.[1];

function readNamed(setting: string, file: string): string {
  try {
    return readSecretFile(file, MAX_FILE_BYTES) ?? fail("SETTING_INVALID", `${file}: there is no such file`);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    return fail(error.name, `${setting.startsWith("-") ? setting : `setting ${setting}`}: ${error.message}`, { cause: error });
  }
}
