// The runtime suite on gvisor, as root, and the tests of memory, which only this driver keeps.
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { runtimeSuite } from "./runtime.suite.ts";
import { killedTests } from "./runtime-killed.suite.ts";
import { memoryTests } from "./runtime-memory.suite.ts";
import { restoredTests } from "./runtime-restored.suite.ts";

const needed = needs("root", "envd", "base", "runsc", "ip");
runtimeSuite("gvisor", "gvisor", { limits: true, users: true, sudo: true }, needed);
const it = (sentence: string, body: () => Promise<void>) => void test(`gvisor: ${sentence}`, needed, body);
memoryTests("gvisor", it);
restoredTests("gvisor", it);
killedTests("gvisor", it);
