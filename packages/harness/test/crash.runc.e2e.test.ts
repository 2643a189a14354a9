// kill -9 of the node on runc.
import { crashSuite } from "./crash.suite.ts";

crashSuite("runc", ["runc"]);
