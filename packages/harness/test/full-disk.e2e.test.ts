// A node on a full disk; full-disk.long.test.ts tries more amounts of free space.
import { fullDiskSuite } from "./full-disk.suite.ts";

fullDiskSuite([0, 2048]);
