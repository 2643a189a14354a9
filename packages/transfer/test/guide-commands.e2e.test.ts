// The commands of docs/transfer-engine.md work unchanged, except for the metadata server's port and a separate home.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { freePorts } from "@svc/harness/ports.ts";
import { openGuide } from "./guide.ts";

/** The output of the commands, in the order of the guide. */
const promised = [
  /100000 bytes written at 0x/,
  /depot: shm: .*\nreads of 1048576 bytes: .* GB\/s/,
  /GB\/s, .* requests\/s, .*\ntcp: /,
  /created svc\/nvmeof\/disk/,
  /nvmeof\/disk: tcp: .* of its owner depot; not file/,
  /svc\/nvmeof\/disk: worker has \S+ at /,
  /created svc\/ram\/later/,
  /local_path_map\.worker +\S+disk\.bin/,
  /svc\/ram\/depot\nsvc\/ram\/later\nsvc\/nvmeof\/disk\n/,
  /127\.0\.0\.1:\d+: shm: /,
];

void test("the guide's commands serve, write, read, measure and keep records unchanged", needs("curl"), async () => {
  using guide = openGuide();
  const script = guide.commands.filter((block) => block.includes("./svc ")).join("\n");
  const service = `127.0.0.1:${(await freePorts(1))[0]}`;
  const said = await guide.run(script.replaceAll("127.0.0.1:8081", service), {
    SVC_HOME: join(guide.folder, "home"),
    SVC_METADATA_LISTEN: service,
    SVC_TRANSFER_METADATA: `http://${service}/metadata`,
  });
  let at = 0;
  for (const words of promised) {
    const found = said.slice(at).search(words);
    assert.ok(found >= 0, `${words} was not said after:\n${said.slice(0, at).slice(-500)}\nbut:\n${said.slice(at, at + 3000)}`);
    at += found + 1;
  }
});
