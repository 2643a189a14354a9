// A client is stopped past its leases right after a put began; client-stopped.long.test.ts tries more moments.
import { clientStoppedSuite } from "./client-stopped.suite.ts";

clientStoppedSuite([0, 2]);
