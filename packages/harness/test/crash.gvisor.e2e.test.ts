// kill -9 of the node on gvisor, at one moment of each step; crash.long.test.ts has more.
import { oneMoment } from "../src/crash.ts";
import { crashSuite } from "./crash.suite.ts";

crashSuite("gvisor", ["runsc"], oneMoment(0));
