// kill -9 of the node at every moment of each step, on gvisor and on runc.
import { everyMoment } from "../src/crash.ts";
import { crashSuite } from "./crash.suite.ts";

crashSuite("gvisor", ["runsc"], everyMoment);
crashSuite("runc", ["runc"], everyMoment);
