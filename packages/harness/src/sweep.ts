// Clears away what killed tests left: sandboxes of their homes, then the homes; run before every test run.
import { existsSync } from "node:fs";
import { join } from "node:path";
import { anchorOf } from "@svc/sandbox/network/block.ts";
import { parseCidr } from "@svc/sandbox/network/cidr.ts";
import { sweepConfined } from "./confine.ts";
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

// A block in use has its anchor on the host.
if (process.getuid?.() === 0) {
  sweepConfined((text) => {
    const block = parseCidr(text);
    return block !== undefined && existsSync(`/sys/class/net/${anchorOf(block)}`);
  });
}
