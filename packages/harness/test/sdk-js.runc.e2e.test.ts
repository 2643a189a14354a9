// The E2B JS SDK on runc.
import { sdkSuite } from "./sdk-js.suite.ts";

sdkSuite("runc", ["runc"]);
