// The files of a gVisor sandbox over a few generations; gvisor-layers.long.test.ts runs more.
import { gvisorLayersSuite } from "./gvisor-layers.suite.ts";

gvisorLayersSuite({ generations: 2, snapshots: 4, pauses: 6 });
