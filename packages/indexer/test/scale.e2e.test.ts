// A small form of scale.long.test.ts, for every run.
import { test } from "node:test";
import { needsPublishers } from "./publisher.ts";
import { compareAtScale } from "./scale.ts";

void test("with messages lost and repeated, every instance's set equals its publisher's, block for block", needsPublishers(), async () => {
  await compareAtScale(8, 300, 10);
});
