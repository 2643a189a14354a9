// Layering of the C++ core: which files may know specific transports.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";

const folder = new URL("../native/src/", import.meta.url);
const ofOneTransport = /#include "(tcp|rdma|fabric|file|host)_|#include "same_host/;
/** These files create transports, or serve files to peers. */
const knowing = ["engine_files.cc", "engine_transports.cc"];

void test("requests, segments, memory and recovery know transports only through one interface", () => {
  const core = readdirSync(folder).filter((name) => /^(engine|segment|slice|transport|batch)[^.]*\.(h|cc)$/.test(name) && !knowing.includes(name));
  assert.ok(core.length > 10);
  for (const name of core) assert.doesNotMatch(readFileSync(new URL(name, folder), "utf8"), ofOneTransport, name);
});
