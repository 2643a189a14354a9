// The runtime suite on bubblewrap, as root.
import { needs } from "@svc/harness/needs.ts";
import { runtimeSuite } from "./runtime.suite.ts";

runtimeSuite("bubblewrap", "bubblewrap", { limits: true, users: true, sudo: false }, needs("root", "envd", "base", "bwrap", "ip"));
