// Bodies of 2 GiB through the node.
import { bulkSuite } from "./bulk.suite.ts";

bulkSuite("runc", "runc", 2 ** 31);
bulkSuite("gvisor", "runsc", 2 ** 31);
