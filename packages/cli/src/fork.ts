// `svc fork`: copies of a running sandbox, each with a row or the reason why it is not there.
import { type AccessOptions, withClient } from "./access.ts";
import { complain, EXIT_FAILURE, ForeseenError } from "./complain.ts";
import { type OutputFormat, outputFormat, printJSON, printTable } from "./table.ts";

type Options = AccessOptions & { count: number; timeout?: number; quiet?: true; output?: OutputFormat };

export function fork(sandboxID: string, { count, timeout, quiet, output, ...access }: Options): Promise<number> {
  return withClient(access, async (client) => {
    const children = await client.fork(sandboxID, { count, ...(timeout === undefined ? {} : { timeoutSeconds: timeout }) });
    const failed = children.flatMap((child, index) => ("error" in child ? [{ index, message: child.error.message }] : []));
    if (quiet === true) {
      for (const child of children) if ("sandbox" in child) process.stdout.write(`${child.sandbox.sandboxID}\n`);
    } else if (outputFormat(output) === "json") printJSON(children);
    else {
      printTable(
        ["CHILD", "SANDBOX ID", "RESULT"],
        children.map((child, index) => [
          String(index + 1),
          "sandbox" in child ? child.sandbox.sandboxID : "",
          "sandbox" in child ? "running" : `failed: ${child.error.message}`,
        ]),
      );
    }
    const reasons = new Set(failed.map(({ message }) => message));
    if (failed.length > 0) complain(new ForeseenError(`${failed.length} of ${children.length} forks of ${sandboxID} failed: ${[...reasons].join("; ")}`));
    return failed.length > 0 || children.length < count ? EXIT_FAILURE : 0;
  });
}
