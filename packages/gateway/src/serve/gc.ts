// `svc gc` through a gateway: every node applies its own rules, and the answer says which node removed what.
import { collectGarbage } from "@svc/contract/gc.ts";
import type { nodeOperations } from "@svc/contract/sandbox.ts";
import type { Handlers } from "@svc/kit/serve.ts";
import type { Merge } from "./merge.ts";

export function gcHandler(merge: Merge): Handlers<typeof nodeOperations>["collectGarbage"] {
  return async ({ dryRun }, context) => {
    const answers = await merge.ask(collectGarbage, () => ({ dryRun }), context);
    return {
      dryRun,
      items: answers.flatMap((each) => each.items),
      failed: answers.flatMap((each) => each.failed),
      more: answers.some((each) => each.more),
      unneeded: answers.flatMap((each) => each.unneeded),
    };
  };
}
