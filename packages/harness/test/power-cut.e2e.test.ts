// One power cut; power-cut.long.test.ts has several in sequence.
import { powerCutSuite } from "./power-cut.suite.ts";

powerCutSuite(1);
