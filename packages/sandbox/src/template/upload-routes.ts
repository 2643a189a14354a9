// PUT /templates/uploads/HASH is not in the table of operations, because its body is a stream and its URL is its credential.
import type { Readable } from "node:stream";
import { fail } from "@svc/contract/failures.ts";
import type { RawScope } from "@svc/kit/serve.ts";
import type { Uploads } from "./uploads.ts";

export function uploadRoutes(uploads: Uploads): (scope: RawScope) => void {
  return (scope) => {
    scope.put("/templates/uploads/:hash", { config: { open: true, operation: "uploadFiles" } as object }, async (request, reply) => {
      const { hash } = request.params as { hash: string };
      const query = request.query as { expires?: string; signature?: string };
      uploads.check(hash, query);
      const body = request.body as Readable | undefined;
      if (body === undefined) fail("INVALID_REQUEST", "the upload has no body; send a tar archive");
      await uploads.receive(hash, request.headers["content-length"], body);
      return reply.code(200).type("application/json; charset=utf-8").send("{}");
    });
  };
}
