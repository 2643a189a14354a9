// A node is killed in the middle of a move, at the steps that hand the sandbox over; move-crash.long.test.ts has all of them.
import { moveCrashSuite } from "./move-crash.suite.ts";

moveCrashSuite({ source: ["move-offer", "move-settle"], target: ["take-own"], both: ["take-own"] });
