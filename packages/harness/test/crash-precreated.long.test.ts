// Blanks over kills, at every moment of each step.
import { everyMoment } from "../src/crash.ts";
import { crashBlanksSuite } from "./crash-blanks.suite.ts";

crashBlanksSuite({ momentsOf: everyMoment, rounds: 5 });
