// Precreated sandboxes over kills, at one moment of each step; crash-precreated.long.test.ts has more.
import { oneMoment } from "../src/crash.ts";
import { crashPrecreatedSuite } from "./crash-precreated.suite.ts";

crashPrecreatedSuite({ momentsOf: oneMoment(0), rounds: 1 });
