// `svc events`: past and current events of sandboxes, snapshots and templates.
import type { LifecycleEvent } from "@svc/contract/observe.ts";
import { type OutputFormat, outputFormat, plain, printJSONLine } from "@svc/contract/table.ts";
import { type AccessOptions, withClient } from "../access/access.ts";
import { remark, UsageError } from "../output/complain.ts";
import { oneRemark } from "../output/reconnect.ts";
import { clock } from "./logs.ts";

type Options = AccessOptions & { follow?: true; since?: string; type?: string[]; sandbox?: string; output?: OutputFormat };

export function events({ follow, since, type, sandbox, output, ...access }: Options): Promise<number> {
  return withClient(access, async (client) => {
    const types = type === undefined ? undefined : await known(type);
    const line = oneRemark();
    const stream = client.events({
      follow: follow === true,
      // Without -f the default is all stored events; with it only new ones.
      ...(since === undefined ? (follow === true ? {} : { since: "0" }) : { since }),
      ...(types === undefined ? {} : { types }),
      ...(sandbox === undefined ? {} : { sandboxID: sandbox }),
      onReconnect: line.broken,
      // With --since 0 the caller expects that older events are missing.
      onGap: ({ asked, oldest }) => asked > 0 && remark(`svc: events after ${asked} and before ${oldest} are not kept any more`),
    });
    const isText = outputFormat(output) === "table";
    for await (const event of stream) {
      line.restored();
      if (isText) process.stdout.write(`${textOf(event)}\n`);
      else printJSONLine(event);
    }
    return 0;
  });
}

/** `sandbox` matches all types that begin with `sandbox.`, `ended` matches sandbox.ended. */
async function known(asked: readonly string[]): Promise<LifecycleEvent["type"][]> {
  const { lifecycleEvents } = await import("@svc/contract/observe.ts");
  return asked.flatMap((word) => {
    const found = lifecycleEvents.filter((type) => type === word || type.split(".").includes(word));
    if (found.length === 0) throw new UsageError(`there is no event ${JSON.stringify(word)}; there are ${lifecycleEvents.join(", ")}`);
    return found;
  });
}

function textOf({ id, type, at, sandboxID, templateID, details }: LifecycleEvent): string {
  const more = Object.entries(details).map(([name, value]) => `${name}=${value}`);
  return `${clock(at)}  ${String(id).padStart(6)}  ${type.padEnd("sandbox.network_changed".length)}  ${plain([sandboxID ?? "", templateID ?? "", ...more].filter((part) => part !== "").join("  "))}`;
}
