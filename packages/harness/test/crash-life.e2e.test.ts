// kill -9 in the middle of a sandbox's life, at one moment of each step; crash-life.long.test.ts has more.
import { oneMoment } from "../src/crash.ts";
import { crashLifeSuite } from "./crash-life.suite.ts";

crashLifeSuite(oneMoment(0), ["checkpoint", "envd", "claim"]);
