// The type of a file by its first bytes or, for text and documents, by its name.
import { extname } from "node:path";

const byName: Readonly<Record<string, string>> = {
  ".csv": "text/csv",
  ".css": "text/css",
  ".htm": "text/html",
  ".html": "text/html",
  ".js": "text/javascript",
  ".json": "application/json",
  ".md": "text/markdown",
  ".pdf": "application/pdf",
  ".png": "image/png",
  ".jpg": "image/jpeg",
  ".jpeg": "image/jpeg",
  ".gif": "image/gif",
  ".webp": "image/webp",
  ".svg": "image/svg+xml",
  ".txt": "text/plain",
  ".xml": "application/xml",
  ".zip": "application/zip",
};

/** Images that models can look at. */
export const imageTypes: ReadonlySet<string> = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);

export function mimeTypeOf(path: string, bytes?: Buffer): string {
  const named = byName[extname(path).toLowerCase()];
  if (bytes === undefined) return named ?? "application/octet-stream";
  const begins = (hex: string, at = 0) => bytes.subarray(at, at + hex.length / 2).toString("hex") === hex;
  if (begins("89504e470d0a1a0a")) return "image/png";
  if (begins("ffd8ff")) return "image/jpeg";
  if (begins("474946383961") || begins("474946383761")) return "image/gif";
  if (begins("52494646") && begins("57454250", 8)) return "image/webp";
  // The bytes are no image, so a name such as `x.png` is ignored: a client would fail to show the file.
  return named === undefined || imageTypes.has(named) ? (bytes.includes(0) ? "application/octet-stream" : "text/plain") : named;
}
