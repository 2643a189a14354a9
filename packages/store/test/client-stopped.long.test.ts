// A client is stopped past its leases at many moments of a put.
import { clientStoppedSuite } from "./client-stopped.suite.ts";

clientStoppedSuite([0, 1, 2, 3, 4, 6, 8, 12]);
