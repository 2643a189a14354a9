// The commands of docs/transfer-engine.md: they work as they stand, but for the metadata server's port and a home of their own.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { freePorts } from "@svc/harness/ports.ts";
import { openGuide } from "./guide.ts";

/** What the commands say, in the order in which the guide promises it. */
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

void test("the commands of the guide serve, write, read, measure and keep records as they stand", needs("curl"), async () => {
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
