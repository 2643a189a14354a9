// Secrets and rules by host on gVisor, whose network stack is its own.
import { egressSuite } from "./egress.suite.ts";

egressSuite("gvisor", "runsc");
