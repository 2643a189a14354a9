// A process that records events and serves them, made to be killed: it prints each id on stdout once `record` has returned.
import { join } from "node:path";
import { openLog } from "@svc/kit/log.ts";
import { openMetrics } from "@svc/kit/metrics.ts";
import { serve } from "@svc/kit/serve.ts";
import { openEventStreams } from "@svc/sandbox/observe/event-streams.ts";
import { openEvents } from "@svc/sandbox/observe/events.ts";

const [home = "", apiKey = ""] = process.argv.slice(2);
const log = openLog("events-test", "warn");
const events = openEvents({ path: join(home, "events.db"), log });
const streams = openEventStreams(events);
const app = serve({ operations: {}, handlers: {}, apiKey, log, metrics: openMetrics(), raw: (scope) => streams.routes(scope) });
await app.listen({ host: "127.0.0.1", port: 0 });
process.stdout.write(`port ${(app.server.address() as { port: number }).port}\n`);
setInterval(() => {
  for (let count = 0; count < 5; count++) {
    events.record("sandbox.paused", { sandboxID: `i${count}`, details: { pid: process.pid } });
    process.stdout.write(`${events.newest}\n`);
  }
}, 1);
