// `svc template cancel`: ends a build that waits or runs.
import { type AccessOptions, withClient } from "./access.ts";
import { buildOf } from "./template-logs.ts";

export function cancelBuild(reference: string, build: string | undefined, access: AccessOptions): Promise<number> {
  return withClient(access, async (client) => {
    const name = await buildOf(client, reference, build);
    await client.templates.cancel(name);
    process.stdout.write(`${name.buildID}\n`);
    return 0;
  });
}
