// What the node of this home has set aside: kept, but not usable as things are; a line for each.
import { join } from "node:path";
import { readSetAside, SET_ASIDE_FILE } from "../node/set-aside.ts";
import { type Check, failed } from "./check.ts";

export function asideChecks(home: string): Check[] {
  return readSetAside(join(home, SET_ASIDE_FILE)).map(({ kind, name, reason }) =>
    failed(
      `${kind} ${name}`,
      `set aside: ${reason}`,
      "it cannot be used; everything else can",
      "bring back what is missing, and the node takes it up again; or delete it",
    ),
  );
}
