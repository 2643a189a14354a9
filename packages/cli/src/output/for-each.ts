// Does one action for several ids, where each failure is reported on its own line; and collects a list that arrives page by page.
import { asFailure } from "@svc/contract/failures.ts";
import { complain } from "./complain.ts";

const CONCURRENCY = 8;

/** Returns the number of `ids` for which the action succeeded; an id that is given twice is processed once and counted twice. */
export async function forEach(ids: readonly string[], act: (id: string) => Promise<void>): Promise<number> {
  const queue = [...new Set(ids)];
  let count = ids.length - queue.length;
  const worker = async () => {
    for (let id = queue.shift(); id !== undefined; id = queue.shift()) {
      try {
        await act(id);
        count++;
      } catch (error) {
        // A failure concerns one id only, unless the server is unreachable or rejects the key.
        const { name } = asFailure(error);
        if (name === "SERVER_UNREACHABLE" || name === "UNAUTHENTICATED") throw error;
        complain(error);
      }
    }
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, worker));
  return count;
}

export async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of items) all.push(item);
  return all;
}
