// Many cuts, drawn from the seed.
import { cutsSuite } from "./cuts.suite.ts";

cutsSuite(60, 3);
