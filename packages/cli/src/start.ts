// `svc start`: creates a sandbox; on a terminal and without -d it opens a shell in it.
import { type AccessOptions, withClient } from "./access.ts";
import { remark } from "./complain.ts";
import { openSession } from "./connect.ts";
import { type OutputFormat, printJSON } from "./table.ts";

type Options = AccessOptions & {
  detach?: true;
  timeout: number;
  metadata?: Record<string, string>;
  env?: Record<string, string>;
  internet: boolean;
  private?: true;
  rm?: true;
  output?: OutputFormat;
};

export function start(templateID: string, options: Options): Promise<number> {
  const { detach, timeout, metadata, env, internet, private: isPrivate, rm, output, url } = options;
  return withClient(url === undefined ? {} : { url }, async (client) => {
    // Specification, command-line client: always a secure sandbox. Every one made by this operation is.
    const sandbox = await client.create({
      templateID,
      timeout,
      allow_internet_access: internet,
      ...(metadata === undefined ? {} : { metadata }),
      ...(env === undefined ? {} : { envVars: env }),
      ...(isPrivate === true ? { network: { allowPublicTraffic: false } } : {}),
    });
    const isAttached = detach !== true && output === undefined && process.stdin.isTTY && process.stdout.isTTY;
    if (!isAttached) {
      if (output === "json") printJSON(sandbox);
      else process.stdout.write(`${sandbox.sandboxID}\n`);
      return 0;
    }
    remark(`sandbox ${sandbox.sandboxID}; Ctrl-] leaves the shell open, exit ends it`);
    const { exitCode, isDetached } = await openSession(client, sandbox, { session: "main", detachKey: "ctrl-]" });
    if (rm === true && !isDetached) await client.delete(sandbox.sandboxID);
    else if (!isDetached) remark(`sandbox ${sandbox.sandboxID} lives on until its timeout; svc delete ${sandbox.sandboxID} ends it now`);
    return exitCode;
  });
}
