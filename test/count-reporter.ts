// A reporter for node:test that writes how many tests passed, failed and were skipped, as one JSON object.
import type { TestEvent } from "node:test/reporters";

/** node:test requires a reporter to be a default export; no other module has one. */
export default async function* countReporter(source: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  const counts = { passed: 0, failed: 0, skipped: 0 };
  for await (const event of source) {
    if (event.type !== "test:pass" && event.type !== "test:fail") continue;
    if (event.data.details.type === "suite" && event.type === "test:pass") continue;
    // `skip` holds the reason, or an empty text when none was given.
    if (event.data.skip !== undefined || event.data.todo !== undefined) counts.skipped++;
    else if (event.type === "test:pass") counts.passed++;
    else counts.failed++;
  }
  yield JSON.stringify(counts);
}
