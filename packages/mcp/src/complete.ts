// Completes the ids of sandboxes and the paths in them, for clients that ask while a person types.
import type { SessionSandboxes } from "./sandboxes.ts";

/** The protocol's limit for one answer. */
const MAX_VALUES = 100;

export async function completeIDs(sandboxes: SessionSandboxes, begun: string): Promise<string[]> {
  const found: string[] = [];
  for await (const { sandboxID } of sandboxes.client.list()) {
    if (sandboxID.startsWith(begun)) found.push(sandboxID);
    if (found.length === MAX_VALUES) break;
  }
  return found;
}

/** Returns the entries of the folder part of an unfinished path; folders end with a slash. The list is empty if the sandbox does not answer. */
export async function completePaths(sandboxes: SessionSandboxes, sandboxID: string | undefined, begun: string): Promise<string[]> {
  if (sandboxID === undefined || sandboxID === "") return [];
  const folder = begun.slice(0, begun.lastIndexOf("/") + 1);
  try {
    const { envd } = await sandboxes.inside(sandboxID);
    const entries = await envd.listDir(`/${folder}`, 1);
    return entries
      .map(({ path, type }) => `${path.slice(1)}${type === "directory" ? "/" : ""}`)
      .filter((path) => path.startsWith(begun))
      .slice(0, MAX_VALUES);
  } catch {
    return [];
  }
}
