// kill -9 of envd, at one moment of each step; crash-envd.long.test.ts has more.
import { oneMoment } from "../src/crash.ts";
import { crashEnvdSuite } from "./crash-envd.suite.ts";

crashEnvdSuite(oneMoment(0));
