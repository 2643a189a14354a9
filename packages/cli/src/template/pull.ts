// `svc template pull`: nodes fetch a template in advance; the command shows how each stands until all have it.
import { setTimeout as delay } from "node:timers/promises";
import type { PullAnswer } from "@svc/contract/pull.ts";
import { duration, type OutputFormat, outputFormat, printJSON, printTable } from "@svc/contract/table.ts";
import { type AccessOptions, withClient } from "../access/access.ts";
import { EXIT_FAILURE, remark } from "../output/complain.ts";

type Options = AccessOptions & { nodes?: string[]; detach?: true; status?: true; output?: OutputFormat };

const POLL_MS = 500;

export function pullTemplate(reference: string, { nodes, detach, status, output, ...access }: Options): Promise<number> {
  return withClient(access, async (client) => {
    const labels = nodes?.join(",");
    let answer = status === true ? await client.templates.pulled(reference, labels) : await client.templates.pull(reference, labels);
    const shown = new Map<string, string>();
    for (;;) {
      if (status !== true) report(answer, shown);
      if (detach === true || status === true || !answer.nodes.some(({ state }) => state === "fetching")) break;
      await delay(POLL_MS);
      answer = await client.templates.pulled(reference, labels);
    }
    if (outputFormat(output) === "json") printJSON(answer);
    else
      printTable(
        ["NODE", "STATE", "TIME", "MESSAGE"],
        answer.nodes.map(({ nodeID, state, seconds, message }) => [nodeID, state, seconds === 0 ? "" : duration(seconds * 1000), message]),
      );
    for (const node of answer.missingNodes) remark(`svc: node ${node} does not answer`);
    const isDone = answer.nodes.every(({ state }) => state === "ready" || (state === "fetching" && detach === true));
    return status === true || (isDone && answer.missingNodes.length === 0) ? 0 : EXIT_FAILURE;
  });
}

/** Prints each change of a node's state once. */
function report({ nodes }: PullAnswer, shown: Map<string, string>): void {
  for (const { nodeID, state } of nodes) {
    if (shown.get(nodeID) === state) continue;
    shown.set(nodeID, state);
    remark(`${nodeID}: ${state}`);
  }
}
