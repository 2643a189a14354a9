// What an S3-compatible server answers in XML: a page of keys, and why it refused.
import type { ObjectInfo } from "./objects.ts";

export type Listing = { readonly objects: readonly ObjectInfo[]; readonly next: string | undefined };

const entities: Readonly<Record<string, string>> = { lt: "<", gt: ">", quot: '"', apos: "'", amp: "&" };

/** The text of the first element of that name; elements of these answers hold either text or others, never both. */
function textOf(xml: string, name: string): string | undefined {
  const found = new RegExp(`<${name}(?:\\s[^>]*)?>([^<]*)</${name}>`).exec(xml)?.[1];
  return found?.replace(/&(?:#(\d+)|#x([0-9a-fA-F]+)|(\w+));/g, (whole, decimal?: string, hex?: string, named?: string) => {
    if (named !== undefined) return entities[named] ?? whole;
    return String.fromCodePoint(Number.parseInt(decimal ?? hex ?? "", decimal === undefined ? 16 : 10));
  });
}

export function listingOf(xml: string): Listing {
  const objects = [...xml.matchAll(/<Contents>(.*?)<\/Contents>/gs)].map(([, each = ""]) => ({
    // Asked for in this encoding, since XML cannot hold every key.
    key: decodeURIComponent((textOf(each, "Key") ?? "").replaceAll("+", "%20")),
    sizeBytes: Number(textOf(each, "Size")),
    modifiedAtMs: Date.parse(textOf(each, "LastModified") ?? ""),
  }));
  return { objects, next: textOf(xml, "IsTruncated") === "true" ? textOf(xml, "NextContinuationToken") : undefined };
}

export function wordsOf(xml: string): { readonly code: string; readonly message: string } {
  return { code: textOf(xml, "Code") ?? "", message: (textOf(xml, "Message") ?? "").slice(0, 300) };
}
