// Many cuts, derived from the seed.
import { cutsSuite } from "./cuts.suite.ts";

cutsSuite(60, 3);
