// A node is killed during a move, at the steps that transfer ownership; move-crash.long.test.ts has all steps.
import { moveCrashSuite } from "./move-crash.suite.ts";

moveCrashSuite({ source: ["move-offer", "move-settle"], target: ["take-own"], both: ["take-own"] });
