// Five power cuts of one node in sequence.
import { powerCutSuite } from "./power-cut.suite.ts";

powerCutSuite(5);
