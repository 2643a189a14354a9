// An egress proxy under gvisor.
import { egressProxySuite } from "./egress-proxy.suite.ts";

egressProxySuite("gvisor", "runsc");
