// One power cut; power-cut.long.test.ts has more, one after the other.
import { powerCutSuite } from "./power-cut.suite.ts";

powerCutSuite(1);
