// `svc resume`: a paused sandbox runs again.
import { type AccessOptions, withClient } from "./access.ts";
import { remark } from "./complain.ts";
import { type OutputFormat, printJSON } from "./table.ts";

type Options = AccessOptions & { timeout?: number; filesOnly?: true; output?: OutputFormat };

export function resume(sandboxID: string, { timeout, filesOnly, output, ...access }: Options): Promise<number> {
  return withClient(access, async (client) => {
    const options = { memory: filesOnly !== true, ...(timeout === undefined ? {} : { timeoutSeconds: timeout }) };
    const { wasPaused, ...sandbox } = await client.resume(sandboxID, options);
    if (!wasPaused) remark(`sandbox ${sandboxID} ran already; it keeps the time it has left, if that is more`);
    if (output === "json") printJSON(sandbox);
    else process.stdout.write(`${sandbox.sandboxID}\n`);
    return 0;
  });
}
