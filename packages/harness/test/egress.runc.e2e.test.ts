// Secrets and rules by host over the runc driver.
import { egressSuite } from "./egress.suite.ts";

egressSuite("runc", "runc");
