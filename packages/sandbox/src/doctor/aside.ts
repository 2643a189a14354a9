// What the servers of this home have set aside: kept, but not usable as things are; a line for each.
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { readSetAside, SET_ASIDE_FILE } from "../node/set-aside.ts";
import { type Check, failed } from "./check.ts";

const SHOWN = 5;

/** None where nothing was set aside. */
export function asideChecks(home: string): Check[] {
  return [...nodeAside(home), ...metadataAside(home)];
}

function nodeAside(home: string): Check[] {
  return readSetAside(join(home, SET_ASIDE_FILE)).map(({ kind, name, reason }) =>
    failed(
      `${kind} ${name}`,
      `set aside: ${reason}`,
      "it cannot be used; everything else can",
      "bring back what is missing, and the node takes it up again; or delete it",
    ),
  );
}

function metadataAside(home: string): Check[] {
  const folder = join(home, "metadata", "damaged");
  let names: string[];
  try {
    names = readdirSync(folder);
  } catch {
    return [];
  }
  if (names.length === 0) return [];
  const says = `${names.length} damaged parts of its records are set aside: ${names.slice(0, SHOWN).join(", ")}${names.length > SHOWN ? ", …" : ""}`;
  return [failed("metadata server", says, "those records are missing until their engines publish them again", `look at ${folder}, then delete what is in it`)];
}
