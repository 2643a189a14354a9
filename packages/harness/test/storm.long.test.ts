// Five hundred rounds of the storm; a run that was cut off is gone on with by the next: storm.json in the cache's logs says where it is.
import { join } from "node:path";
import { stormSuite } from "./storm.suite.ts";

stormSuite({ rounds: 500, budgetMs: 90 * 60_000, atLeastEach: 50, stateFile: join(process.env["SVC_TEST_LOGS"] ?? ".svc", "../storm.json") });
