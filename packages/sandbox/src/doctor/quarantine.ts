// One line per item that the servers of this home have quarantined.
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { QUARANTINE_FILE, type Quarantined, readQuarantine } from "../records/quarantine.ts";
import { type Check, failed } from "./check.ts";

const SHOWN = 5;

/** Returns no check if nothing is quarantined. */
export function quarantineChecks(home: string): Check[] {
  return [...nodeQuarantine(home), ...metadataQuarantine(home), ...storeQuarantine(home)];
}

function fixOf(home: string, kind: Quarantined["kind"], name: string): string {
  const back = "bring back what is missing, and the node takes it up again";
  switch (kind) {
    case "sandbox":
      return `${back}; or \`svc delete ${name}\``;
    case "snapshot":
      return `${back}; or \`svc snapshot delete ${name}\``;
    case "template":
    case "build":
      return `${back}; or \`svc template delete ${name}\``;
    case "layer":
      return `bring back ${join(home, "layers", name, "layer.json")} and start the node again; or delete the templates that need it: it is removed with the last of them`;
    case "driver":
      return `install it again, and the node takes it up; or delete the sandboxes, snapshots and templates that need it`;
  }
}

function nodeQuarantine(home: string): Check[] {
  return readQuarantine(join(home, QUARANTINE_FILE)).map(({ kind, name, reason }) =>
    failed(`${kind} ${name}`, `quarantined: ${reason}`, "it cannot be used; everything else can", fixOf(home, kind, name)),
  );
}

function metadataQuarantine(home: string): Check[] {
  const folder = join(home, "metadata", "damaged");
  let names: string[];
  try {
    names = readdirSync(folder);
  } catch {
    return [];
  }
  if (names.length === 0) return [];
  const says = `${names.length} damaged parts of its records are quarantined: ${names.slice(0, SHOWN).join(", ")}${names.length > SHOWN ? ", …" : ""}`;
  return [failed("metadata server", says, "those records are missing until their engines publish them again", `look at ${folder}, then delete what is in it`)];
}

function storeQuarantine(home: string): Check[] {
  const folder = join(home, "store");
  let names: string[];
  try {
    names = readdirSync(folder).filter((name) => name.endsWith(".damaged"));
  } catch {
    return [];
  }
  if (names.length === 0) return [];
  const says = `${names.length} damaged files of its log are quarantined: ${names.slice(0, SHOWN).join(", ")}${names.length > SHOWN ? ", …" : ""}`;
  return [failed("store master", says, "keys that were put before are misses until they are put again", `delete them from ${folder} once you have looked`)];
}
