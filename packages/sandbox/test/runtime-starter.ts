// A separate process that starts one sandbox and reports it just before; the recovery tests kill it.
import { openLog } from "@svc/kit/log.ts";
import { openSpawner } from "@svc/kit/spawn.ts";
import { openRuntime } from "@svc/sandbox/runtime/open-runtime.ts";
import type { RuntimeName, StartSpec } from "@svc/sandbox/runtime/runtime.ts";

const [name = "", home = "", spec = ""] = process.argv.slice(2);
const spawner = openSpawner();
const programs = { runsc: process.env["SVC_RUNSC"] };
const runtime = await openRuntime(name as RuntimeName, { home, spawner, log: openLog("starter", "silent"), programs });
// The helper runs before the test starts its timer.
await spawner.run(["/bin/true"]);
process.stdout.write("starting\n");
await runtime.start(JSON.parse(spec) as StartSpec);
process.stdout.write("started\n");
setInterval(() => {}, 1000);
