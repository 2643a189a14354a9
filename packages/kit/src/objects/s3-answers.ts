// Parses the XML answers of an S3-compatible server: a page of keys, and the reason of a refusal.
import type { ObjectInfo } from "./objects.ts";

export type Listing = { readonly objects: readonly ObjectInfo[]; readonly next: string | undefined };

const entities: Readonly<Record<string, string>> = { lt: "<", gt: ">", quot: '"', apos: "'", amp: "&" };

/** Returns the text of the first element with this name; elements in these answers hold either text or elements, never both. */
function textOf(xml: string, name: string): string | undefined {
  const found = new RegExp(`<${name}(?:\\s[^>]*)?>([^<]*)</${name}>`).exec(xml)?.[1];
  return found?.replace(/&(?:#(\d+)|#x([0-9a-fA-F]+)|(\w+));/g, (whole, decimal?: string, hex?: string, named?: string) => {
    if (named !== undefined) return entities[named] ?? whole;
    return String.fromCodePoint(Number.parseInt(decimal ?? hex ?? "", decimal === undefined ? 16 : 10));
  });
}

export function listingOf(xml: string): Listing {
  const objects = [...xml.matchAll(/<Contents>(.*?)<\/Contents>/gs)].map(([, each = ""]) => ({
    // We request keys in URL encoding, since XML cannot represent every key.
    key: decodeURIComponent((textOf(each, "Key") ?? "").replaceAll("+", "%20")),
    sizeBytes: Number(textOf(each, "Size")),
    modifiedAtMs: Date.parse(textOf(each, "LastModified") ?? ""),
  }));
  return { objects, next: textOf(xml, "IsTruncated") === "true" ? textOf(xml, "NextContinuationToken") : undefined };
}

export function refusalOf(xml: string): { readonly code: string; readonly message: string } {
  return { code: textOf(xml, "Code") ?? "", message: (textOf(xml, "Message") ?? "").slice(0, 300) };
}
