// `svc store ls`: lists keys page by page, with their size and holders.
import { fail } from "@svc/contract/failures.ts";
import { byteSize } from "@svc/contract/table.ts";
import { type Arguments, ask, operands, print, progress, tenantQuery, wholeNumber } from "./arguments.ts";
import { entriesOf } from "./key-entries.ts";

const MAX_LISTED = 1_000_000;
const PAGE = 10_000;

export async function list(args: Arguments): Promise<number> {
  const [prefix = ""] = operands(args, "[PREFIX]");
  const limit = wholeNumber(args, "limit", 1000, MAX_LISTED);
  const { keys, after } = await keysFrom(args, prefix, limit);
  const entries = await entriesOf(args, keys);
  progress("");
  if (after !== undefined) process.stderr.write(`there are more: --after ${after}\n`);
  print(
    args,
    entries,
    ["KEY", "SIZE", "HOLDERS"],
    entries.map(({ key, sizeBytes, replicas }) => [key, sizeBytes === null ? "-" : byteSize(sizeBytes), replicas.map(({ endpoint }) => endpoint).join(", ")]),
  );
  return 0;
}

/** Lists as JSON, since another client's key may contain line breaks. The master's cursor stays valid whatever is put or removed in between. */
async function keysFrom(args: Arguments, prefix: string, limit: number): Promise<{ keys: string[]; after: string | undefined }> {
  const keys: string[] = [];
  let after: string | undefined = args.text("after") ?? "0";
  let seen = 0;
  while (after !== undefined && keys.length < limit) {
    const page: number = Math.min(PAGE, prefix === "" ? limit - keys.length : PAGE);
    const answer = await ask(args, `/api/v1/objects?${tenantQuery(args)}limit=${page}&after=${encodeURIComponent(after)}`);
    if (!answer.ok) fail("STORE_REFUSED", `the master answered ${answer.status}: it lists no objects at /api/v1/objects; is it another maker's?`);
    const { objects, next } = (await answer.json()) as { objects: { key: string }[]; next: number | null };
    seen += objects.length;
    for (const { key } of objects) if (key.startsWith(prefix)) keys.push(key);
    after = next === null ? undefined : String(next);
    progress(`${keys.length} of ${seen} keys`);
  }
  return { keys: keys.slice(0, limit), after };
}
