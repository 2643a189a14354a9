// A node on a full disk, and on one with less and less room.
import { fullDiskSuite } from "./full-disk.suite.ts";

fullDiskSuite([0, 256, 1024, 2048, 4096]);
