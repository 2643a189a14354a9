// The life of a sandbox on gVisor.
import { lifeSuite } from "./life.suite.ts";

lifeSuite();
