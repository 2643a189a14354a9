// Clears away what killed tests left: sandboxes of their homes, then the homes; run before every test run.
import { existsSync } from "node:fs";
import { join } from "node:path";
import { removeHome, staleHomes } from "./home.ts";
import { destroyAll } from "./node.ts";

for (const home of staleHomes()) {
  try {
    if (existsSync(join(home, "sandboxes.db"))) await destroyAll(home);
    removeHome(home);
  } catch (error) {
    process.stderr.write(`${home} of a killed test could not be cleared away: ${(error as Error).message}\n`);
  }
}
