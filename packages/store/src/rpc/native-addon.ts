// Loads the store's native part, and refuses one whose names differ from those of TypeScript.
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { fail } from "@svc/contract/failures.ts";
import { differenceOf } from "./native-names.ts";

let loaded: unknown;

/** @throws HOST_UNSUITABLE where the addon was not built, or belongs to other sources. */
export function loadAddon<Addon>(): Addon {
  if (loaded !== undefined) return loaded as Addon;
  const path = process.env["SVC_STORE_NATIVE"] || fileURLToPath(new URL("../../native/build/svc_store.node", import.meta.url));
  let addon: { readonly names?: Readonly<Record<string, readonly string[]>> };
  try {
    addon = createRequire(import.meta.url)(path);
  } catch (error) {
    return fail("HOST_UNSUITABLE", `the store's native part cannot be loaded from ${path}: ${(error as Error).message}; ./svc setup builds it`, {
      cause: error,
    });
  }
  const difference = differenceOf(addon.names ?? {});
  if (difference !== undefined)
    fail("HOST_UNSUITABLE", `the store's native part at ${path} was built from other sources: ${difference}; ./svc setup builds it again`);
  loaded = addon;
  return addon as Addon;
}
