// Volumes over the bubblewrap driver.
import { volumeSuite } from "./volumes.suite.ts";

volumeSuite("bubblewrap", false);
