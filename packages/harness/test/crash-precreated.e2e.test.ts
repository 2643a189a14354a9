// Blanks over kills, at one moment of each step; crash-blanks.long.test.ts has more.
import { oneMoment } from "../src/crash.ts";
import { crashBlanksSuite } from "./crash-blanks.suite.ts";

crashBlanksSuite({ momentsOf: oneMoment(0), rounds: 1 });
