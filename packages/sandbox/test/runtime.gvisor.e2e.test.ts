// The runtime suite on gvisor, as root.
import { needs } from "@svc/harness/needs.ts";
import { runtimeSuite } from "./runtime.suite.ts";

runtimeSuite("gvisor", "gvisor", { limits: true, users: true, sudo: true }, needs("root", "envd", "base", "runsc", "ip"));
