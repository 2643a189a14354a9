// The credential matrix at a node.
import { startNode } from "../src/node.ts";
import { credentialsSuite } from "./credentials.suite.ts";

credentialsSuite("node", (env) => startNode({ runtime: "runc", env }));
