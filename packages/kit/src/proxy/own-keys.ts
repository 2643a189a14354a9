// Which keys of a request are the platform's: the deployment's own in both spellings, and every named key.
import { sdkKeyOf } from "@svc/contract/sdk-key.ts";
import type { RequestHead } from "./request-head.ts";

/** The named keys as a proxy sees them; `size` 0 costs one comparison a request. */
export type NamedKeys = { readonly size: number; knows(text: string): boolean };

/** Says whether the header carries a key of the platform, which no sandbox may see. */
export function carriesOwnKey(head: RequestHead, header: number, apiKey: string, named: NamedKeys | undefined): boolean {
  if (!head.has(header)) return false;
  return head.carries(header, apiKey) || head.carries(header, sdkKeyOf(apiKey)) || carriesNamedKey(head, header, named);
}

export function carriesNamedKey(head: RequestHead, header: number, named: NamedKeys | undefined): boolean {
  return named !== undefined && named.size > 0 && head.has(header) && head.values(header).some((value) => named.knows(value));
}
