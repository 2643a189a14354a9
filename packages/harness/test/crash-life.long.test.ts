// kill -9 in the middle of a sandbox's life, at every moment of each step.
import { everyMoment } from "../src/crash.ts";
import { crashLifeSuite } from "./crash-life.suite.ts";

crashLifeSuite(everyMoment, ["checkpoint", "restore", "envd", "identity", "claim"]);
