// `svc delete`: ends sandboxes, by id or all of them.
import type { SvcClient } from "@svc/contract/client.ts";
import { type AccessOptions, withClient } from "../access/access.ts";
import { EXIT_FAILURE, remark, UsageError } from "../output/complain.ts";
import { collect, forEach } from "../output/for-each.ts";

type Options = AccessOptions & { all?: true; yes?: true };

export async function remove(ids: readonly string[], { all, yes, ...access }: Options): Promise<number> {
  if (all === true && ids.length > 0) throw new UsageError("delete takes ids or --all, not both");
  if (all !== true && ids.length === 0) throw new UsageError("delete: expected the ids of sandboxes, or --all; svc list shows them");
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
  return (await collect(client.list())).map(({ sandboxID }) => sandboxID);
}

/** Deletes the sandboxes and returns how many are gone. */
export function removeAll(client: SvcClient, ids: readonly string[], removed: (id: string) => void): Promise<number> {
  return forEach(ids, async (id) => {
    await client.delete(id);
    removed(id);
  });
}

function countOf(count: number): string {
  return count === 1 ? "1 sandbox" : `${count} sandboxes`;
}

async function agreed(count: number, url: string): Promise<boolean> {
  if (!process.stdin.isTTY || !process.stderr.isTTY)
    throw new UsageError(`delete --all would delete ${countOf(count)} at ${url}; without a terminal to confirm at, add --yes`);
  const { confirm, isCancel } = await import("@clack/prompts");
  const answer = await confirm({
    message: `End ${countOf(count)} at ${url}, with all data in ${count === 1 ? "it" : "them"}?`,
    initialValue: false,
    output: process.stderr,
  });
  return !isCancel(answer) && answer;
}
