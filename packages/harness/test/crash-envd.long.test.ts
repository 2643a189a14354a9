// kill -9 of envd at every moment of each step.
import { everyMoment } from "../src/crash.ts";
import { crashEnvdSuite } from "./crash-envd.suite.ts";

crashEnvdSuite(everyMoment);
