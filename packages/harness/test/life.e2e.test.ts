// A sandbox's life on gVisor.
import { lifeSuite } from "./life.suite.ts";

lifeSuite();
