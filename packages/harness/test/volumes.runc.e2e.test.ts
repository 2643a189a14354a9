// Volumes over the runc driver.
import { volumeSuite } from "./volumes.suite.ts";

volumeSuite("runc", false);
