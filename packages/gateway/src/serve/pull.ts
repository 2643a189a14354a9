// `svc template pull` through a gateway: every node that has the labels fetches, and each says how it stands.
import { MISSING_NODES_HEADER } from "@svc/contract/cluster.ts";
import { fail } from "@svc/contract/failures.ts";
import type { Parsed } from "@svc/contract/operation.ts";
import { getPull, hasNodeLabels, type PullAnswer, type pullOperations, pullTemplate } from "@svc/contract/pull.ts";
import type { Context, Handlers } from "@svc/kit/serve.ts";
import type { Members } from "../members/members.ts";
import type { Merge } from "./merge.ts";

export function pullHandlers(merge: Merge, members: Pick<Members, "all">): Handlers<typeof pullOperations> {
  async function ask(operation: typeof pullTemplate | typeof getPull, input: Parsed<typeof pullTemplate>, context: Context): Promise<PullAnswer> {
    const missingNodes: string[] = [];
    const header = (name: string, value: string) => {
      if (name === MISSING_NODES_HEADER) missingNodes.push(...value.split(","));
      context.header(name, value);
    };
    const chosen = members.all.filter((member) => !member.isUp || hasNodeLabels(labelsOf(member.identity?.labels), input.nodeLabels));
    if (!chosen.some((member) => member.isUp))
      fail("INVALID_REQUEST", `nodeLabels: no node that answers has ${input.nodeLabels ?? "any"}; \`svc nodes list --output json\` shows the labels of each`);
    const answers = await merge.ask(operation, (member) => (chosen.includes(member) ? input : undefined), { ...context, header });
    return { nodes: answers.flatMap((each) => each.nodes), missingNodes };
  }
  return { pullTemplate: (input, context) => ask(pullTemplate, input, context), getPull: (input, context) => ask(getPull, input, context) };
}

const labelsOf = (labels: Readonly<Record<string, string>> = {}): string[] => Object.entries(labels).map(([name, value]) => `${name}=${value}`);
