// `svc delete`: ends sandboxes, by id or all of them.
import type { SvcClient } from "@svc/contract/client.ts";
import { asFailure } from "@svc/contract/failures.ts";
import { type AccessOptions, withClient } from "./access.ts";
import { complain, EXIT_FAILURE, remark, UsageError } from "./complain.ts";

type Options = AccessOptions & { all?: true; yes?: true };

const CONCURRENCY = 8;

export async function remove(ids: readonly string[], { all, yes, ...access }: Options): Promise<number> {
  if (all === true && ids.length > 0) throw new UsageError("delete takes ids or --all, not both");
  if (all !== true && ids.length === 0) throw new UsageError("delete wants the ids of sandboxes, or --all; svc list shows them");
  return withClient(access, async (client) => {
    const targets = all === true ? await allSandboxes(client) : ids;
    if (all === true && targets.length > 0 && yes !== true && !(await agreed(targets.length, client.baseURL))) {
      remark("nothing deleted");
      return EXIT_FAILURE;
    }
    return (await removeAll(client, targets, (id) => process.stdout.write(`${id}\n`))) === targets.length ? 0 : EXIT_FAILURE;
  });
}

export async function allSandboxes(client: SvcClient): Promise<string[]> {
  const ids: string[] = [];
  for await (const { sandboxID } of client.list()) ids.push(sandboxID);
  return ids;
}

/** Deletes them, a few at a time, each failure with a line of its own; how many are gone. */
export async function removeAll(client: SvcClient, ids: readonly string[], removed: (id: string) => void): Promise<number> {
  const queue = [...new Set(ids)];
  let count = ids.length - queue.length;
  const worker = async () => {
    for (let id = queue.shift(); id !== undefined; id = queue.shift()) {
      try {
        await client.delete(id);
        removed(id);
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

async function agreed(count: number, url: string): Promise<boolean> {
  if (!process.stdin.isTTY || !process.stderr.isTTY)
    throw new UsageError(`delete --all would end ${count} sandboxes at ${url}; without a terminal it wants --yes`);
  const { confirm, isCancel } = await import("@clack/prompts");
  const answer = await confirm({ message: `End ${count} sandboxes at ${url}, and all in them?`, initialValue: false, output: process.stderr });
  return !isCancel(answer) && answer;
}
