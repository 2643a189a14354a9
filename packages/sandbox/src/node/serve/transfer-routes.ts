// Snapshots as files over HTTP; not in the table of operations, since their bodies are streams.
import { Readable } from "node:stream";
import { fail } from "@svc/contract/failures.ts";
import { snapshotName } from "@svc/contract/lifecycle.ts";
import type { RawScope } from "@svc/kit/serve.ts";
import { shownSnapshot } from "../../records/snapshots.ts";
import type { SnapshotFiles } from "../../snapshot-transfer/snapshot-files.ts";

/** A client that reads nothing for this long is disconnected. */
const SILENCE_MS = 60_000;
const LOOK_MS = 5_000;

export function transferRoutes(files: SnapshotFiles): (scope: RawScope) => void {
  return (scope) => {
    scope.get("/snapshots/:snapshotID/export", { config: { operation: "exportSnapshot" } as object }, async (request, reply) => {
      const { snapshotID } = request.params as { snapshotID: string };
      const { base = "false" } = request.query as { base?: string };
      if (base !== "true" && base !== "false") fail("INVALID_REQUEST", `base: expected true or false, got ${JSON.stringify(base)}`);
      const file = await files.export(snapshotID, base === "true");
      const body = Readable.from(file.body, { objectMode: false });
      const watch = setInterval(() => {
        if (performance.now() - file.takenAtMs() > SILENCE_MS) body.destroy(new Error(`the client read nothing of the file for ${SILENCE_MS / 1000} s`));
      }, LOOK_MS);
      body.once("close", () => {
        clearInterval(watch);
        file.close();
      });
      return reply.header("content-length", file.bytes).header("x-snapshot-id", file.snapshotID).type("application/x-tar").send(body);
    });
    scope.post("/snapshots/import", { config: { operation: "importSnapshot" } as object }, async (request, reply) => {
      const { name } = request.query as { name?: string };
      const parsed = snapshotName.optional().safeParse(name);
      if (!parsed.success) fail("INVALID_REQUEST", `name: ${parsed.error.issues[0]?.message}`);
      const body = request.body as Readable | undefined;
      if (body === undefined) fail("INVALID_REQUEST", "there is no body; send the file that svc snapshot export wrote");
      // After a failure the connection stays open and the rest of the body is discarded, so that the client gets the answer.
      const imported = files.import(body.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>, parsed.data).finally(() => void body.resume());
      const { snapshot, isNew } = await imported;
      return reply
        .code(isNew ? 201 : 200)
        .type("application/json; charset=utf-8")
        .send(JSON.stringify(shownSnapshot(snapshot)));
    });
  };
}
