// The files of a gVisor sandbox over many generations.
import { gvisorLayersSuite } from "./gvisor-layers.suite.ts";

gvisorLayersSuite({ generations: 8, snapshots: 16, pauses: 12 });
