// The E2B JS SDK on bubblewrap.
import { sdkSuite } from "./sdk-js.suite.ts";

sdkSuite("bubblewrap", ["bwrap"]);
