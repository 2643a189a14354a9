// `svc store ls`: lists keys page by page, with their size and holders.
import { fail } from "@svc/contract/failures.ts";
import { byteSize } from "@svc/contract/table.ts";
import { entriesOf } from "./key-entries.ts";
import { ask, operands, print, progress, tenantQuery, type Words, wholeNumber } from "./words.ts";

const MAX_LISTED = 1_000_000;
const PAGE = 10_000;

export async function list(words: Words): Promise<number> {
  const [prefix = ""] = operands(words, "[PREFIX]");
  const limit = wholeNumber(words, "limit", 1000, MAX_LISTED);
  const { keys, after } = await keysFrom(words, prefix, limit);
  const entries = await entriesOf(words, keys);
  progress("");
  if (after !== undefined) process.stderr.write(`there are more: --after ${after}\n`);
  print(
    words,
    entries,
    ["KEY", "SIZE", "HOLDERS"],
    entries.map(({ key, sizeBytes, replicas }) => [key, byteSize(sizeBytes), replicas.map(({ endpoint }) => endpoint).join(", ")]),
  );
  return 0;
}

/** Lists as JSON, since another client's key may contain line breaks. The master's cursor stays valid whatever is put or removed in between. */
async function keysFrom(words: Words, prefix: string, limit: number): Promise<{ keys: string[]; after: string | undefined }> {
  const keys: string[] = [];
  let after: string | undefined = words.text("after") ?? "0";
  let seen = 0;
  while (after !== undefined && keys.length < limit) {
    const page: number = Math.min(PAGE, prefix === "" ? limit - keys.length : PAGE);
    const answer = await ask(words, `/api/v1/objects?${tenantQuery(words)}limit=${page}&after=${encodeURIComponent(after)}`);
    if (!answer.ok) fail("STORE_REFUSED", `the master answered ${answer.status}: it lists no objects at /api/v1/objects; is it another maker's?`);
    const { objects, next } = (await answer.json()) as { objects: { key: string }[]; next: number | null };
    seen += objects.length;
    for (const { key } of objects) if (key.startsWith(prefix)) keys.push(key);
    after = next === null ? undefined : String(next);
    progress(`${keys.length} of ${seen} keys`);
  }
  return { keys: keys.slice(0, limit), after };
}
