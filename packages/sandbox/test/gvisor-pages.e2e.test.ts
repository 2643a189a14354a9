// Pages that a full disk cut short: an incomplete checkpoint is never accepted, however its program ended.
import assert from "node:assert/strict";
import { statSync, truncateSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { checkPages, pagesOf } from "../src/runtime/gvisor-pages.ts";
import { openFixture, run } from "./runtime-fixture.ts";

const PAGE_BYTES = 4096;

void test(
  "a checkpoint with fewer pages than its metadata declares is refused, for memory and for files",
  needs("root", "envd", "base", "runsc", "ip"),
  async () => {
    await using fixture = await openFixture("gvisor");
    const handle = await fixture.start();
    await run(handle, "for at in /opt /dev/shm; do head -c 8M /dev/urandom >$at/bytes; done; sync");
    for (const kind of ["memory", "filesystem"] as const) {
      const { directory } = await fixture.checkpoint(handle, kind);
      await checkPages({ directory, kind });
      const pages = join(directory, "pages.img");
      const { size } = statSync(pages);
      assert.ok(size >= 8 * 2 ** 20, `${kind}: ${size}`);
      truncateSync(pages, size - PAGE_BYTES);
      await assert.rejects(checkPages({ directory, kind }), {
        name: "CHECKPOINT_FAILED",
        message: new RegExp(`has ${size - PAGE_BYTES} bytes where its metadata says ${size}`),
      });
      truncateSync(pages, 0);
      await assert.rejects(checkPages({ directory, kind }), { name: "CHECKPOINT_FAILED" });
      truncateSync(pages, size);
      const metadata = join(directory, "pages_meta.img");
      for (const cut of [1, 64, statSync(metadata).size]) {
        truncateSync(metadata, statSync(metadata).size - cut);
        await assert.rejects(checkPages({ directory, kind }), { name: "CHECKPOINT_FAILED" }, `${kind}: ${cut}`);
      }
    }
  },
);

void test("invalid metadata has no pages", () => {
  for (const text of [
    Buffer.alloc(0),
    Buffer.alloc(7),
    Buffer.alloc(64),
    Buffer.alloc(64, 0xff),
    Buffer.from("no metadata at all, but text that is long enough"),
  ]) {
    for (const kind of ["memory", "filesystem"] as const) assert.equal(pagesOf(text, kind), undefined);
  }
});
