// The E2B JS SDK on gvisor.
import { sdkSuite } from "./sdk-js.suite.ts";

sdkSuite("gvisor", ["runsc"]);
