// Files of sandboxes as resources: sandbox://ID/PATH, as text or as base64 with their type.
import { isUtf8 } from "node:buffer";
import { type McpServer, ResourceNotFoundError, ResourceTemplate } from "@modelcontextprotocol/server";
import type { EnvdClient } from "@svc/contract/envd.ts";
import { asFailure, fail } from "@svc/contract/failures.ts";
import { completeIDs, completePaths } from "./complete.ts";
import { mimeTypeOf } from "./mime-type.ts";
import type { SessionSandboxes } from "./sandboxes.ts";

const MAX_LISTED = 200;
const MAX_RESOURCE_BYTES = 4 * 1024 * 1024;
const HOME = "/home/user";

export const resourceURI = (sandboxID: string, path: string) => `sandbox://${sandboxID}${encodeURI(path)}`;

export function addResources(server: McpServer, sandboxes: SessionSandboxes): void {
  const template = new ResourceTemplate("sandbox://{sandbox}/{+path}", {
    list: async () => ({ resources: await ownFiles(sandboxes) }),
    complete: {
      sandbox: (begun) => completeIDs(sandboxes, begun),
      path: (begun, context) => completePaths(sandboxes, context?.arguments?.["sandbox"], begun),
    },
  });
  const about = { title: "A file of a sandbox", description: `A file by its sandbox's id and its absolute path, up to ${MAX_RESOURCE_BYTES >> 20} MiB.` };
  server.registerResource("file", template, about, async (uri, { sandbox, path }) => {
    const file = `/${decodeURIComponent(String(path))}`;
    try {
      const { envd } = await sandboxes.inside(String(sandbox));
      return { contents: [{ uri: uri.href, ...(await contentOf(envd, file)) }] };
    } catch (error) {
      const { name, message } = asFailure(error);
      if (name === "SANDBOX_NOT_FOUND" || name === "FILE_NOT_FOUND") throw new ResourceNotFoundError(uri.href, message);
      throw error;
    }
  });
}

async function contentOf(envd: EnvdClient, file: string): Promise<{ mimeType: string; text: string } | { mimeType: string; blob: string }> {
  const { sizeBytes, type } = await envd.stat(file);
  if (type === "directory") fail("INVALID_REQUEST", `${file} is a folder: list it with list_files`);
  if (sizeBytes > MAX_RESOURCE_BYTES)
    fail("PAYLOAD_TOO_LARGE", `${file} has ${sizeBytes} bytes; the maximum is ${MAX_RESOURCE_BYTES}, read parts of it with read_file`);
  const chunks: Buffer[] = [];
  for await (const chunk of (await envd.download(file)).body as AsyncIterable<Buffer>) chunks.push(chunk);
  const bytes = Buffer.concat(chunks);
  const mimeType = mimeTypeOf(file, bytes);
  return isUtf8(bytes) && !mimeType.startsWith("image/") ? { mimeType, text: bytes.toString("utf8") } : { mimeType, blob: bytes.toString("base64") };
}

/** The files in the home folders of the session's own sandboxes. */
async function ownFiles(sandboxes: SessionSandboxes) {
  const resources: { uri: string; name: string; mimeType: string; size: number }[] = [];
  for (const sandboxID of sandboxes.ids()) {
    // A sandbox that has ended has no files.
    const entries = await sandboxes.inside(sandboxID).then(
      ({ envd }) => envd.listDir(HOME, 1).catch(() => []),
      () => [],
    );
    for (const { path, type, sizeBytes } of entries) {
      if (type !== "file" || path.startsWith(`${HOME}/.`)) continue;
      if (resources.length === MAX_LISTED) return resources;
      resources.push({ uri: resourceURI(sandboxID, path), name: path.slice(HOME.length + 1), mimeType: mimeTypeOf(path), size: sizeBytes });
    }
  }
  return resources;
}
