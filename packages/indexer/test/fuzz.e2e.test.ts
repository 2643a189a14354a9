// The msgpack walk, the index and the scan of queries under AddressSanitizer and UndefinedBehaviorSanitizer.
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { fuzzNative } from "./fuzz.ts";

void test("damaged batches and bodies never reach outside their bytes, and the budget holds", needs("g++"), () => fuzzNative(3_000, ["1"], false));
