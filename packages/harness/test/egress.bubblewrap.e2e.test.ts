// Secrets and rules by host over the bubblewrap driver.
import { egressSuite } from "./egress.suite.ts";

egressSuite("bubblewrap", "bwrap");
