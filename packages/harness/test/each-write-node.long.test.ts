// Every write of each change of a node, with a SIGKILL and a start on the full disk after each.
import { eachWriteNodeSuite } from "./each-write-node.suite.ts";

eachWriteNodeSuite({ next: (n) => n + 1, restartsAt: () => true });
