// The maps of a create: metadata and environment variables, with their limits.
import { z } from "zod";
import { limits } from "./fields.ts";

/** A map of strings with limits on the number of keys and on its size in bytes. */
export function stringMap(what: string, keys: number, bytes: number) {
  return z
    .record(z.string().min(1).max(256), z.string())
    .refine((map) => Object.keys(map).length <= keys, `${what}: at most ${keys} entries`)
    .refine((map) => Buffer.byteLength(JSON.stringify(map)) <= bytes, `${what}: at most ${bytes} bytes`);
}

const envName = /^[A-Za-z_][A-Za-z0-9_]*$/;
export const envVars = stringMap("envVars", limits.envKeys, limits.envBytes).superRefine((map, context) => {
  for (const [name, value] of Object.entries(map)) {
    if (!envName.test(name)) context.addIssue({ code: "custom", path: [name], message: "a name has letters, digits and _ only, and begins with no digit" });
    else if (value.includes("\0")) context.addIssue({ code: "custom", path: [name], message: "its value holds a NUL" });
  }
});
