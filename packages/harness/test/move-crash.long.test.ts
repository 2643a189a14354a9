// A node is killed at each step of a move.
import { moveCrashSuite } from "./move-crash.suite.ts";

moveCrashSuite({
  source: ["move-export", "move-offer", "move-ask", "move-settle"],
  target: ["take-import", "take-own", "take-record"],
  both: ["move-offer", "take-own"],
});
