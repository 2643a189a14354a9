// Five hundred rounds of the storm; an interrupted run is continued by the next, from storm.json in the cache's logs.
import { join } from "node:path";
import { stormSuite } from "./storm.suite.ts";

stormSuite({ rounds: 500, budgetMs: 90 * 60_000, atLeastEach: 50, stateFile: join(process.env["SVC_TEST_LOGS"] ?? ".svc", "../storm.json") });
