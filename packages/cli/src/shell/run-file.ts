// `svc run`: runs a user's program on the pinned Node, with access to the packages of this tree and to the deployment's address.
import { statSync } from "node:fs";
import { registerHooks } from "node:module";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { findAccess } from "../access/access.ts";
import { UsageError } from "../output/complain.ts";

export async function runFile(file: string, args: readonly string[]): Promise<number> {
  const path = resolve(file);
  const found = statSync(path, { throwIfNoEntry: false });
  if (found === undefined) throw new UsageError(`there is no file ${path}`);
  if (!found.isFile()) throw new UsageError(`${path}: expected a file with a program in TypeScript or JavaScript, got a folder`);
  await lendAccess();
  // A module that the program's own folder lacks is resolved among the packages of this tree.
  registerHooks({
    resolve(specifier, context, next) {
      try {
        return next(specifier, context);
      } catch (error) {
        const isPackage = !/^(\.|\/|[a-z]+:)/.test(specifier);
        if (!isPackage || (error as { code?: string }).code !== "ERR_MODULE_NOT_FOUND") throw error;
        try {
          return next(specifier, { ...context, parentURL: import.meta.url });
        } catch {
          // The error for the program's own folder is the one that its author understands.
          throw error;
        }
      }
    },
  });
  process.argv = [process.execPath, path, ...args];
  try {
    await import(pathToFileURL(path).href);
  } catch (error) {
    const { code, message, stack = "" } = error as NodeJS.ErrnoException;
    if (code !== "ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX") throw error;
    // Only the first line of the stack contains the position.
    throw new UsageError(`${/^\S+:\d+/.exec(stack)?.[0] ?? path}: ${message}: types are erased, not compiled`);
  }
  return Number(process.exitCode ?? 0);
}

/** Sets the variables of our client and of the E2B SDKs. The user's own values stay, but a key is never combined with another server's URL. */
async function lendAccess(): Promise<void> {
  const { url, apiKey } = await findAccess({});
  const { env } = process;
  env["SVC_URL"] ||= url;
  if (apiKey !== undefined) env["SDK_API_KEY"] ||= apiKey;
  if (env["E2B_API_URL"]) return;
  // The key of the SDKs may belong to a hosted service and must not be sent to this server.
  delete env["E2B_API_KEY"];
  Object.assign(env, { E2B_API_URL: url, E2B_SANDBOX_URL: url, ...(apiKey === undefined ? {} : { E2B_API_KEY: apiKey, E2B_VALIDATE_API_KEY: "false" }) });
}
