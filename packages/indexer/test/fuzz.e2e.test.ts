// Fuzzes the msgpack parser, the index and the query scan under AddressSanitizer and UndefinedBehaviorSanitizer.
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { fuzzNative } from "./fuzz.ts";

void test("damaged batches and bodies never cause an access outside their bytes, and the budget holds", needs("g++"), () => fuzzNative(3_000, ["1"], false));
