// The envd programs of a home and their command line: one copy per content, so that a restored sandbox finds the program that it ran.
import { createHash } from "node:crypto";
import { chmodSync, copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { ENVD_PORT } from "@svc/contract/envd-http.ts";
import { fail } from "@svc/contract/failures.ts";

/** Returns the path that set-up passes in this environment variable. @throws HOST_UNSUITABLE. */
export function binaryOf(variable: string, name: string): string {
  const path = process.env[variable];
  if (path !== undefined && existsSync(path)) return path;
  return fail(
    "HOST_UNSUITABLE",
    `${variable} names ${path === undefined ? "nothing" : `'${path}', which does not exist`}: ${name} is missing; start the node with ./svc, which installs it`,
  );
}

/** Copies `binary` to bin/envd-<hash of its content> unless it exists; returns the file name in `bin`. */
export function keepEnvd(home: string, binary: string): string {
  const name = `envd-${createHash("sha256").update(readFileSync(binary)).digest("hex").slice(0, 16)}`;
  const folder = join(home, "bin");
  const path = join(folder, name);
  if (existsSync(path)) return name;
  mkdirSync(folder, { recursive: true, mode: 0o711 });
  const half = `${path}.${process.pid}`;
  copyFileSync(binary, half);
  chmodSync(half, 0o755);
  renameSync(half, path);
  return name;
}

export function envdPath(home: string, name: string): string {
  return join(home, "bin", name);
}

/** Returns the program and command line of envd, PID 1 of a sandbox. A sandbox restored from a checkpoint needs the ones it was started with. */
export function agentOf(home: string, name: string, publicKeyBase64: string) {
  return { binary: envdPath(home, name), args: ["-listen", `0.0.0.0:${ENVD_PORT}`, "-init-key", publicKeyBase64], env: {} };
}

/** Removes copies that no sandbox, snapshot or template needs. */
export function sweepEnvd(home: string, inUse: ReadonlySet<string>): void {
  for (const name of readdirSync(join(home, "bin"))) if (name.startsWith("envd-") && !inUse.has(name)) rmSync(join(home, "bin", name), { force: true });
}
