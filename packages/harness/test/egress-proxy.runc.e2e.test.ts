// An egress proxy under runc.
import { egressProxySuite } from "./egress-proxy.suite.ts";

egressProxySuite("runc", "runc");
