// What a gVisor sandbox wrote over a few generations; gvisor-layers.long.test.ts has more.
import { gvisorLayersSuite } from "./gvisor-layers.suite.ts";

gvisorLayersSuite({ generations: 2, snapshots: 4, pauses: 6 });
