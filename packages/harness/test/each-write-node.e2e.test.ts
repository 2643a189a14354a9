// The first writes of each change of a node, and some later ones; each-write-node.long.test.ts tries them all.
import { eachWriteNodeSuite } from "./each-write-node.suite.ts";

eachWriteNodeSuite({ next: (n) => (n === 0 ? 1 : n * 8), restartsAt: (n) => n === 1 });
