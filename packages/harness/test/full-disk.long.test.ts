// A node on a full disk, and on disks with various amounts of free space.
import { fullDiskSuite } from "./full-disk.suite.ts";

fullDiskSuite([0, 256, 1024, 2048, 4096]);
