// A few cuts; cuts.long.test.ts has more of them.
import { cutsSuite } from "./cuts.suite.ts";

cutsSuite(4, 2);
