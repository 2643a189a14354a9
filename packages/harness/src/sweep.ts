// Cleans up after killed tests before every run: the sandboxes of their homes, then disks and homes.
import { execFileSync } from "node:child_process";
import { existsSync, realpathSync } from "node:fs";
import { join } from "node:path";
import { parseCidr } from "@svc/sandbox/egress/cidr.ts";
import { anchorOf } from "@svc/sandbox/network/block.ts";
import { mountsUnder } from "@svc/sandbox/runtime/mounts.ts";
import { sweepConfined } from "./confine.ts";
import { removeHome, staleHomes } from "./home.ts";
import { destroyAll } from "./node.ts";

for (const stale of staleHomes()) {
  try {
    // On a bounded disk the home is one folder below.
    for (const home of [stale, join(stale, "home")]) if (existsSync(join(home, "sandboxes.db"))) await destroyAll(home);
    for (const point of mountsUnder(realpathSync(stale))) execFileSync("umount", ["-l", point]);
    removeHome(stale);
  } catch (error) {
    process.stderr.write(`${stale} of a killed test could not be cleared away: ${(error as Error).message}\n`);
  }
}

// A block in use has its anchor interface on the host.
if (process.getuid?.() === 0) {
  sweepConfined((text) => {
    const block = parseCidr(text);
    return block !== undefined && existsSync(`/sys/class/net/${anchorOf(block)}`);
  });
}
