// Volumes over the gvisor driver.
import { volumeSuite } from "./volumes.suite.ts";

volumeSuite("gvisor", true);
