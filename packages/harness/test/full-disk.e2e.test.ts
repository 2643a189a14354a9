// A node on a full disk; full-disk.long.test.ts has more amounts of room.
import { fullDiskSuite } from "./full-disk.suite.ts";

fullDiskSuite([0, 2048]);
