// Several at once: one thing done to several ids, each that fails with a line of its own; a list that comes page by page.
import { asFailure } from "@svc/contract/failures.ts";
import { complain } from "./complain.ts";

const CONCURRENCY = 8;

/** How many of `ids` it was done to; one named twice is done once and counts twice. */
export async function forEach(ids: readonly string[], act: (id: string) => Promise<void>): Promise<number> {
  const queue = [...new Set(ids)];
  let count = ids.length - queue.length;
  const worker = async () => {
    for (let id = queue.shift(); id !== undefined; id = queue.shift()) {
      try {
        await act(id);
        count++;
      } catch (error) {
        // What holds for one id does not hold for the others, unless the server or the key is the matter.
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
