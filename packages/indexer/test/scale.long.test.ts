// Indexes a million blocks from 64 concurrent publisher processes.
import { test } from "node:test";
import { needsPublishers } from "./publisher.ts";
import { compareAtScale } from "./scale.ts";

void test("a million blocks from 64 publishers over a lossy wire end as exact sets", needsPublishers(), async () => {
  await compareAtScale(64, 625, 25);
});
