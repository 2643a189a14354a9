// Passes a registry's credentials to skopeo for one fetch in a file of mode 0600, never as an argument.
import { randomBytes } from "node:crypto";
import { mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import type { Job, RegistryCredentials } from "./builder.ts";
import { ecrLogin, type Login } from "./ecr.ts";

/** Runs `work` with the path of a file that is deleted afterwards; the path is undefined without credentials. */
export async function withAuthFile<T>(job: Job, host: string, work: (path: string | undefined) => Promise<T>): Promise<T> {
  if (job.credentials === undefined) return work(undefined);
  const { username, password } = await loginOf(job.credentials, host, job.signal);
  const folder = join(job.builder.home, "run");
  await mkdir(folder, { recursive: true, mode: 0o711 });
  const path = join(folder, `registry-${randomBytes(8).toString("hex")}.json`);
  const text = JSON.stringify({ auths: { [host]: { auth: Buffer.from(`${username}:${password}`).toString("base64") } } });
  try {
    await writeFile(path, text, { mode: 0o600, flag: "wx" });
    return await work(path);
  } finally {
    await rm(path, { force: true });
  }
}

async function loginOf(credentials: RegistryCredentials, host: string, signal: AbortSignal): Promise<Login> {
  switch (credentials.type) {
    case "registry":
      if (credentials.username.includes(":")) fail("INVALID_REQUEST", "fromImageRegistry: a username must not contain ':'");
      return { username: credentials.username, password: credentials.password };
    case "gcp":
      // The registry accepts a service account's complete key file as the password of this fixed name.
      return { username: "_json_key", password: credentials.serviceAccountJson };
    case "aws":
      return ecrLogin(credentials, host, signal);
  }
}
