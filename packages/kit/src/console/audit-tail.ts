// The newest lines of an audit log, for the console.
import { open } from "node:fs/promises";

/** A page shows what fits in this much of the file's end; the file itself has the rest. */
const TAIL_BYTES = 256 * 1024;
const MAX_LINES = 500;

export type AuditLine = Readonly<Record<string, unknown>> & { readonly at: string; readonly kind: string };

/** Returns the newest lines, newest first. A file that does not exist yet has none; a line that is not JSON is left out. */
export async function auditTail(path: string): Promise<AuditLine[]> {
  let bytes: Buffer;
  let isWhole: boolean;
  try {
    await using file = await open(path, "r");
    const { size } = await file.stat();
    const from = Math.max(0, size - TAIL_BYTES);
    const { buffer, bytesRead } = await file.read(Buffer.alloc(size - from), 0, size - from, from);
    bytes = buffer.subarray(0, bytesRead);
    isWhole = from === 0;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
    throw error;
  }
  const lines = bytes.toString("utf8").split("\n");
  // The first line of a part of the file is cut off at its beginning.
  return (isWhole ? lines : lines.slice(1)).flatMap(lineOf).slice(-MAX_LINES).reverse();
}

function lineOf(text: string): AuditLine[] {
  try {
    const line = JSON.parse(text) as Partial<AuditLine>;
    return typeof line.at === "string" && typeof line.kind === "string" ? [line as AuditLine] : [];
  } catch {
    return [];
  }
}
