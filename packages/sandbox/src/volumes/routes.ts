// The handlers of volumes, and the routes of their content, which stream and need a volume's token instead of the API key.
import { Readable } from "node:stream";
import { fail } from "@svc/contract/failures.ts";
import { issueText } from "@svc/contract/issues.ts";
import { VOLUME_CONTENT, volumeContentQuery, volumeMetadata, type volumeOperations } from "@svc/contract/volumes.ts";
import type { Handlers, RawScope } from "@svc/kit/serve.ts";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { z } from "zod";
import * as content from "./content.ts";
import type { Volumes } from "./open-volumes.ts";
import type { VolumeFolders } from "./volume-disks.ts";

const MAX_METADATA_BYTES = 4096;

export function volumeHandlers(volumes: Volumes): Handlers<typeof volumeOperations> {
  return {
    async createVolume({ name, sizeMB }, { principal }) {
      const made = await volumes.create(name, sizeMB ?? undefined, principal);
      return { ...made, token: volumes.tokenOf(made.volumeID) };
    },
    listVolumes: (_input, { principal }) => volumes.list(principal),
    async getVolume({ volumeID }, { principal }) {
      const found = await volumes.get(volumeID, principal);
      return { ...found, token: volumes.tokenOf(found.volumeID) };
    },
    async deleteVolume({ volumeID }, { principal }) {
      await volumes.delete(volumeID, principal);
      return undefined;
    },
  };
}

type Query = z.output<typeof volumeContentQuery>;
type Opened = VolumeFolders & { readonly leftBytes: number };
type Answer = (reply: FastifyReply, opened: Opened, query: Query, request: FastifyRequest) => Promise<FastifyReply>;

export function volumeRoutes(volumes: Volumes): (scope: RawScope) => void {
  return (scope) => {
    const route = (method: "GET" | "PUT" | "POST" | "PATCH" | "DELETE", kind: "path" | "dir" | "file", answer: Answer) =>
      scope.route({
        method,
        exposeHeadRoute: false,
        url: `${VOLUME_CONTENT}/:volumeID/${kind}`,
        config: { open: true, operation: `volume${kind}` } as object,
        handler: async (request, reply) => {
          const { volumeID } = request.params as { volumeID: string };
          const opened = await volumes.open(volumeID, bearerOf(request));
          const query = volumeContentQuery.safeParse(request.query);
          if (!query.success) fail("INVALID_REQUEST", issueText(query.error, request.query as Record<string, unknown>));
          return answer(reply, opened, query.data, request);
        },
      });
    const json = (reply: FastifyReply, status: number, value: unknown) =>
      reply.code(status).type("application/json; charset=utf-8").send(JSON.stringify(value));

    route("GET", "path", async (reply, opened, { path }) => json(reply, 200, await content.readStat(opened, path)));
    route("PATCH", "path", async (reply, opened, { path }, request) =>
      json(reply, 200, await content.changeMetadata(opened, path, await metadataOf(request.body as Readable | undefined))),
    );
    route("DELETE", "path", async (reply, opened, { path }) => {
      await content.remove(opened, path);
      return reply.code(204).send();
    });
    route("GET", "dir", async (reply, opened, { path, depth }) => json(reply, 200, await content.list(opened, path, depth)));
    route("POST", "dir", async (reply, opened, { path, ...owned }) => json(reply, 201, await content.makeFolder(opened, path, owned)));
    route("GET", "file", async (reply, opened, { path }) => {
      const file = await content.openFile(opened, path);
      reply.code(200).type("application/octet-stream").header("content-length", String(file.size));
      if (file.size > 0) return reply.send(file.stream());
      await file.close();
      return reply.send("");
    });
    route("PUT", "file", async (reply, opened, { path, ...owned }, request) => {
      const body = (request.body as Readable | undefined) ?? Readable.from([]);
      return json(reply, 201, await content.writeFile(opened, path, body, owned, opened.leftBytes));
    });
  };
}

function bearerOf(request: FastifyRequest): string | undefined {
  return /^Bearer (\S{1,256})$/i.exec(request.headers.authorization ?? "")?.[1];
}

async function metadataOf(body: Readable | undefined) {
  let text = "";
  for await (const chunk of body ?? []) {
    text += String(chunk);
    if (text.length > MAX_METADATA_BYTES) fail("PAYLOAD_TOO_LARGE", `the body is larger than ${MAX_METADATA_BYTES} bytes`);
  }
  const parsed = volumeMetadata.safeParse(parsedJSON(text));
  return parsed.success ? parsed.data : fail("INVALID_REQUEST", issueText(parsed.error));
}

function parsedJSON(text: string): unknown {
  try {
    return JSON.parse(text === "" ? "{}" : text);
  } catch {
    return fail("INVALID_REQUEST", "the body is not valid JSON; expected uid, gid and mode");
  }
}
