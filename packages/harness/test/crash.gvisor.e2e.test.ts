// kill -9 of the node on gvisor.
import { crashSuite } from "./crash.suite.ts";

crashSuite("gvisor", ["runsc"]);
