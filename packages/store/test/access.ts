// Keys for tests of access control: a file with an unrestricted key and one for each of two tenants.
import { chmodSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { startMaster, type TestMaster } from "./master.ts";

export const tokens = { all: "all-0123456789abcdef", blue: "blue-0123456789abcdef", red: "red-0123456789abcdef", wrong: "wrong-0123456789abcdef" } as const;
export const bearer = (token: string | undefined): Record<string, string> => (token === undefined ? {} : { Authorization: `Bearer ${token}` });

const KEYS = `# who may do what\n${tokens.all}\n\n${tokens.blue} blue\n  ${tokens.red}\tred\r\n`;

export function keyFile(folder: string, text = KEYS, mode = 0o600): string {
  const file = join(folder, "keys");
  writeFileSync(file, text);
  chmodSync(file, mode);
  return file;
}

export type GuardedMaster = TestMaster & { readonly file: string };

/** Starts a master with tenants and access control; both tenants have a quota. */
export async function startGuarded(flags: readonly string[] = []): Promise<GuardedMaster> {
  const home = makeHome();
  const file = keyFile(home);
  const master = await startMaster({ home, flags: [`--store.access_file=${file}`, "--enable_multi_tenants", ...flags] });
  for (const tenant of ["default", "blue", "red"]) {
    const body = JSON.stringify({ requested_quota_bytes: 1 << 30 });
    const answer = await fetch(`${master.url}/api/v1/tenant_quotas?tenant_id=${tenant}`, { method: "PUT", body, headers: bearer(tokens.all) });
    if (!answer.ok) throw new Error(await answer.text());
  }
  const { [Symbol.asyncDispose]: end } = master;
  return Object.assign(Object.create(master) as TestMaster, {
    file,
    async [Symbol.asyncDispose]() {
      await end();
      removeHome(home);
    },
  });
}
