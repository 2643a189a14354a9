// All Dockerfiles of src/dockerfiles.ts.
import { dockerfileSuite } from "./dockerfiles.suite.ts";

dockerfileSuite(() => true);
