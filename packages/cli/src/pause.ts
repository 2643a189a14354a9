// `svc pause`: keeps sandboxes on disk and frees what they use.
import { asFailure } from "@svc/contract/failures.ts";
import { type AccessOptions, withClient } from "./access.ts";
import { EXIT_FAILURE, remark } from "./complain.ts";
import { forEach } from "./for-each.ts";

type Options = AccessOptions & { filesOnly?: true };

export function pause(ids: readonly string[], { filesOnly, ...access }: Options): Promise<number> {
  return withClient(access, async (client) => {
    const done = await forEach(ids, async (id) => {
      try {
        await client.pause(id, { memory: filesOnly !== true });
      } catch (error) {
        // What was asked for holds already.
        if (asFailure(error).name !== "SANDBOX_PAUSED") throw error;
        remark(`sandbox ${id} was paused already`);
      }
      process.stdout.write(`${id}\n`);
    });
    return done === ids.length ? 0 : EXIT_FAILURE;
  });
}
