// An egress proxy under bubblewrap.
import { egressProxySuite } from "./egress-proxy.suite.ts";

egressProxySuite("bubblewrap", "bwrap");
