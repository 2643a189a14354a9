// The servers of the store: one of each kind per home.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { startMaster } from "./master.ts";
import { startMetadataServer } from "./server.ts";

const run = promisify(execFile);
const sourceOf = (server: string) => fileURLToPath(new URL(`../src/${server}/main.ts`, import.meta.url));
const START = `import(process.argv[1]).then(({ main }) => main(process.argv.slice(2))).then((code) => { process.exitCode = code; })`;

void test("a second master, or a second metadata server, on one home is refused, with the process that runs the first", async () => {
  await using master = await startMaster();
  await using metadata = await startMetadataServer();
  const second = (server: string, home: string) =>
    run(process.execPath, ["--disable-warning=ExperimentalWarning", "-e", START, sourceOf(server), `--home=${home}`, "--listen=127.0.0.1:0"]);
  await assert.rejects(second("master", master.home), new RegExp(`process ${master.pid} already runs svc store master on `));
  await assert.rejects(second("metadata", metadata.home), new RegExp(`process ${metadata.pid} already runs svc metadata on `));
});
