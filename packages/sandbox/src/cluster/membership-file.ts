// The file in a node's home that remembers its membership: its slot, and whether sandboxes of an earlier generation have to end first.
import { readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import { z } from "zod";

const shape = z.object({
  version: z.literal(1),
  deploymentID: z.string(),
  slot: z.number().int().min(0),
  generation: z.number().int().min(1),
  /** An earlier generation was declared dead, and some of its sandboxes have not ended yet. */
  isLost: z.boolean(),
});
export type Remembered = z.output<typeof shape>;

const pathOf = (home: string) => join(home, "membership.json");

/** @throws SETTING_INVALID if the file exists and cannot be read. */
export function readMembership(home: string): Remembered | undefined {
  const path = pathOf(home);
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
  try {
    return shape.parse(JSON.parse(text));
  } catch (cause) {
    return fail(
      "SETTING_INVALID",
      `${path} cannot be read: it is damaged; restore it, or remove it together with ${join(home, "node-id")} to join as a new node`,
      {
        cause,
      },
    );
  }
}

export function writeMembership(home: string, remembered: Remembered): void {
  const path = pathOf(home);
  rmSync(`${path}.new`, { force: true });
  writeFileSync(`${path}.new`, `${JSON.stringify(remembered)}\n`, { mode: 0o600, flush: true });
  renameSync(`${path}.new`, path);
}
