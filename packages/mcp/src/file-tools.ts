// Tools for files in a sandbox: read, write, list, remove.
import { isUtf8 } from "node:buffer";
import type { Readable } from "node:stream";
import type { McpServer } from "@modelcontextprotocol/server";
import type { EnvdClient, RequestOptions } from "@svc/contract/envd.ts";
import { asFailure, fail } from "@svc/contract/failures.ts";
import { z } from "zod";
import { answer, answering } from "./answer.ts";
import { imageTypes, mimeTypeOf } from "./mime-type.ts";
import { resourceURI } from "./resources.ts";
import type { SessionSandboxes } from "./sandboxes.ts";
import { path, sandbox } from "./tool-fields.ts";

const MAX_READ_BYTES = 256 * 1024;
const MAX_IMAGE_BYTES = 4 * 1024 * 1024;
const MAX_WRITE_BYTES = 16 * 1024 * 1024;
const MAX_ENTRIES = 1000;

/** Groups of four characters, with optional white space between lines and optional padding at the end. */
const BASE64 = /^\s*(?:[A-Za-z0-9+/]{4}\s*)*(?:[A-Za-z0-9+/]{2}(?:==)?|[A-Za-z0-9+/]{3}=?)?\s*$/;

const encoding = z.enum(["utf8", "base64"]).default("utf8").describe("base64 for what is not text");

export function addFileTools(server: McpServer, sandboxes: SessionSandboxes): void {
  server.registerTool(
    "read_file",
    {
      title: "Read a file",
      description: `Reads a file of the sandbox, at most ${MAX_READ_BYTES / 1024} KiB at a time: offset and limit choose the bytes, and text ends with a whole character. An image is shown (PNG, JPEG, GIF, WebP; up to ${MAX_IMAGE_BYTES >> 20} MiB); any other file that is not text is read with encoding base64, or as the resource that the answer names.`,
      inputSchema: z.strictObject({
        path,
        offset: z.number().int().min(0).default(0),
        limit: z.number().int().min(1).max(MAX_READ_BYTES).default(MAX_READ_BYTES),
        encoding,
        sandbox,
      }),
      outputSchema: z.object({
        content: z.string().describe("Empty for an image, which is part of the answer as such"),
        offset: z.number(),
        bytes: z.number(),
        sizeBytes: z.number(),
        more: z.boolean(),
        mimeType: z.string().optional(),
      }),
      annotations: { readOnlyHint: true },
    },
    ({ path: file, offset, limit, encoding: as, sandbox: named }, context) =>
      answering(context, async () => {
        const { signal } = context.mcpReq;
        const { envd, sandboxID } = await sandboxes.inside(named);
        const { sizeBytes, path: full } = await envd.stat(file, { signal });
        const { body } = await envd.download(file, { signal });
        const read = await part(body, offset, limit);
        const mimeType = as === "utf8" && offset === 0 ? mimeTypeOf(file, read) : "";
        if (imageTypes.has(mimeType) && sizeBytes <= MAX_IMAGE_BYTES) {
          const image = read.length === sizeBytes ? read : await part((await envd.download(file, { signal })).body, 0, sizeBytes);
          const data = { content: "", offset, bytes: image.length, sizeBytes, more: false, mimeType };
          return { content: [{ type: "image", mimeType, data: image.toString("base64") }], structuredContent: data };
        }
        const bytes = as === "utf8" && read.length === limit ? wholeCharacters(read) : read;
        const end = offset + bytes.length;
        const more = end < sizeBytes;
        const content = as === "utf8" ? textOf(bytes, offset, resourceURI(sandboxID, full)) : bytes.toString(as);
        const isPastEnd = offset > 0 && read.length === 0;
        const note = more
          ? `\n[… bytes ${offset} to ${end} of ${sizeBytes}: read on with offset ${end} …]`
          : isPastEnd
            ? `[the file has ${sizeBytes} bytes]`
            : "";
        return answer({ content, offset, bytes: bytes.length, sizeBytes, more }, content + note);
      }),
  );

  server.registerTool(
    "write_file",
    {
      title: "Write a file",
      description: "Writes a file of the sandbox as a whole, over what was there; missing folders are made.",
      inputSchema: z.strictObject({ path, content: z.string().max(MAX_WRITE_BYTES), encoding, user: z.string().optional(), sandbox }),
      outputSchema: z.object({ path: z.string(), sizeBytes: z.number() }),
    },
    ({ path: file, content, encoding: as, user, sandbox: named }, context) =>
      answering(context, async () => {
        const { signal } = context.mcpReq;
        const bytes = Buffer.from(content, as);
        if (as === "base64" && !BASE64.test(content)) fail("INVALID_REQUEST", "content: is not valid base64; send text with encoding utf8");
        const { envd } = await sandboxes.inside(named);
        await envd.upload(file, bytes, { user, signal, sizeBytes: bytes.length });
        return answer({ path: file, sizeBytes: bytes.length }, `wrote ${bytes.length} bytes to ${file}`);
      }),
  );

  server.registerTool(
    "list_files",
    {
      title: "List a folder",
      description: `Lists a folder of the sandbox, and those below it down to depth; at most ${MAX_ENTRIES} entries.`,
      inputSchema: z.strictObject({ path: path.default("."), depth: z.number().int().min(1).max(10).default(1), sandbox }),
      outputSchema: z.object({ entries: z.array(z.object({ path: z.string(), type: z.string(), sizeBytes: z.number() })), more: z.boolean() }),
      annotations: { readOnlyHint: true },
    },
    ({ path: folder, depth, sandbox: named }, context) =>
      answering(context, async () => {
        const { signal } = context.mcpReq;
        const { envd } = await sandboxes.inside(named);
        const found = await envd.listDir(folder, depth, { signal });
        const entries = found.slice(0, MAX_ENTRIES).map(({ path: at, type, sizeBytes }) => ({ path: at, type, sizeBytes }));
        const more = found.length > entries.length;
        const lines = entries.map(({ path: at, type, sizeBytes }) => (type === "directory" ? `${at}/` : `${at}  ${sizeBytes}`));
        return answer({ entries, more }, [...lines, ...(more ? [`[… ${found.length - entries.length} more …]`] : [])].join("\n"));
      }),
  );

  server.registerTool(
    "remove_file",
    {
      title: "Remove a file or folder",
      description: "Removes a file of the sandbox, or a folder with all in it; what is not there is no error, and removed is false.",
      inputSchema: z.strictObject({ path, user: z.string().optional(), sandbox }),
      outputSchema: z.object({ path: z.string(), removed: z.boolean() }),
      annotations: { destructiveHint: true, idempotentHint: true },
    },
    ({ path: file, user, sandbox: named }, context) =>
      answering(context, async () => {
        const { signal } = context.mcpReq;
        const { envd } = await sandboxes.inside(named);
        const removed = await isThere(envd, file, { user, signal });
        await envd.remove(file, { user, signal });
        return answer({ path: file, removed }, removed ? `removed ${file}` : `${file} was not there`);
      }),
  );
}

async function isThere(envd: EnvdClient, file: string, options: RequestOptions): Promise<boolean> {
  try {
    await envd.stat(file, options);
    return true;
  } catch (error) {
    if (asFailure(error).name === "FILE_NOT_FOUND") return false;
    throw error;
  }
}

/** Drops the last character if the cut split it. */
function wholeCharacters(bytes: Buffer): Buffer {
  for (let back = 1; back <= Math.min(3, bytes.length - 1); back++) {
    const byte = bytes[bytes.length - back] as number;
    if (byte < 0x80) break;
    if (byte < 0xc0) continue;
    const length = byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
    return length > back ? bytes.subarray(0, bytes.length - back) : bytes;
  }
  return bytes;
}

/** @throws INVALID_REQUEST for bytes that are not UTF-8: replacement characters would damage the file if the model wrote it back. */
function textOf(bytes: Buffer, offset: number, uri: string): string {
  if (!isUtf8(bytes))
    fail(
      "INVALID_REQUEST",
      `bytes ${offset} to ${offset + bytes.length} are not valid UTF-8: read them with encoding base64, or from the beginning of a character; the whole file is the resource ${uri}`,
    );
  return bytes.toString("utf8");
}

/** Returns `limit` bytes from `offset` on, without reading the rest. */
async function part(body: Readable, offset: number, limit: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let at = 0;
  for await (const chunk of body as AsyncIterable<Buffer>) {
    const from = Math.max(0, offset - at);
    const to = Math.min(chunk.length, offset + limit - at);
    if (to > from) chunks.push(chunk.subarray(from, to));
    at += chunk.length;
    if (at >= offset + limit) break;
  }
  return Buffer.concat(chunks);
}
