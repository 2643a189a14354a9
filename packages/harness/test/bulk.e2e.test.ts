// Bodies of 128 MiB through the node.
import { bulkSuite } from "./bulk.suite.ts";

bulkSuite("runc", "runc", 2 ** 27);
bulkSuite("gvisor", "runsc", 2 ** 27);
