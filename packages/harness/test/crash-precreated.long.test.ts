// Precreated sandboxes over kills, at every moment of each step.
import { everyMoment } from "../src/crash.ts";
import { crashPrecreatedSuite } from "./crash-precreated.suite.ts";

crashPrecreatedSuite({ momentsOf: everyMoment, rounds: 5 });
