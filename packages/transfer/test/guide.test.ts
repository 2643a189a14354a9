// The TypeScript of docs/transfer-engine.md: it is checked by the compiler, and does what the guide says.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { openGuide, ROOT } from "./guide.ts";

void test("the TypeScript quick start of the guide compiles under the strict rules of this tree", async () => {
  using guide = openGuide();
  writeFileSync(join(guide.folder, "guide.tsconfig.json"), JSON.stringify({ extends: "./tsconfig.json", include: ["receive.ts", "send.ts"] }));
  await guide.run(`${ROOT}/node_modules/.bin/tsc -p guide.tsconfig.json`);
});

void test("the TypeScript quick start of the guide runs as it stands", async () => {
  using guide = openGuide();
  const commands = guide.commands.find((block) => block.includes("send.ts"));
  assert.ok(commands !== undefined);
  assert.match(await guide.run(commands), /^shm: .*\n(.*\n)*send\.ts: hello from TypeScript$/m);
});
