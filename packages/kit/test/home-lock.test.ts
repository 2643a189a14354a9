// A home has at most one server of a kind.
import assert from "node:assert/strict";
import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { lockHome } from "@svc/kit/home-lock.ts";

const HOLDER = fileURLToPath(new URL("home-holder.ts", import.meta.url));

void test("a home has one server of a kind: the second is refused with the process id of the first, whichever path it used", async () => {
  const folder = mkdtempSync(join(tmpdir(), "svc-lock-"));
  const [home, link] = [join(folder, "home"), join(folder, "link")];
  const holder = fork(HOLDER, [home, "metadata"]);
  try {
    await once(holder, "message");
    symlinkSync(home, link);
    const refusal = { name: "HOST_UNSUITABLE", message: new RegExp(`^process ${holder.pid} already runs svc metadata on .*link: stop it`) };
    await assert.rejects(lockHome(link, "metadata"), refusal);
    await lockHome(home, "indexer");
    // The lock ends with its process, however the process ends.
    holder.kill("SIGKILL");
    await once(holder, "exit");
    await lockHome(home, "metadata");
  } finally {
    holder.kill("SIGKILL");
    rmSync(folder, { recursive: true });
  }
});
