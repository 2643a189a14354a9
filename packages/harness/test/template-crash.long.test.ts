// SIGKILL of the node at every stage of a build.
import { killedBuildSuite } from "./template-crash.suite.ts";

killedBuildSuite(["build base", "build 1", "build layer", "build 2", "build finalize", "build checkpoint"]);
