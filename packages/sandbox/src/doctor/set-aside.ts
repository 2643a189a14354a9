// What the servers of this home could not read at their start and set aside.
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { type Check, failed } from "./check.ts";

/** One line for each folder that has something; none when nothing was set aside. */
export function setAsideChecks(home: string): Check[] {
  const folder = join(home, "metadata", "damaged");
  let names: string[];
  try {
    names = readdirSync(folder);
  } catch {
    return [];
  }
  if (names.length === 0) return [];
  const says = `${names.length} damaged parts of its records are set aside: ${names.slice(0, 5).join(", ")}${names.length > 5 ? ", \u2026" : ""}`;
  return [failed("metadata server", says, "those records are missing until their engines publish them again", `look at ${folder}, then delete what is in it`)];
}
