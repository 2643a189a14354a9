// Makes sandbox ids: DNS labels that reveal only which node made them.
import { randomBytes } from "node:crypto";
import { ID_RANDOM_CHARS, idStart } from "@svc/contract/cluster-records.ts";

const alphabet = "abcdefghijklmnopqrstuvwxyz0123456789";

/** Returns `i`, the node's slot, and 19 of [a-z0-9]: a DNS label without `-`, so that <port>-<id> parses in only one way. */
export function newSandboxID(slot: number | undefined): string {
  let id = idStart(slot);
  const length = id.length + ID_RANDOM_CHARS;
  while (id.length < length) {
    for (const byte of randomBytes(ID_RANDOM_CHARS)) {
      // 252 = 7 * 36: higher bytes would favour the first letters.
      if (byte < 252 && id.length < length) id += alphabet[byte % 36];
    }
  }
  return id;
}
