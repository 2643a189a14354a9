// The runtime suite on runc, as root.
import { needs } from "@svc/harness/needs.ts";
import { runtimeSuite } from "./runtime.suite.ts";

runtimeSuite("runc", "runc", { limits: true, users: true, sudo: true }, needs("root", "envd", "base", "runc", "ip"));
