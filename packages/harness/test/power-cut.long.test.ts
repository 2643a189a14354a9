// Five power cuts of one node, one after the other.
import { powerCutSuite } from "./power-cut.suite.ts";

powerCutSuite(5);
