// `svc timeout`: sets when a sandbox ends.
import { type AccessOptions, withClient } from "./access.ts";

export function timeout(sandboxID: string, seconds: number, access: AccessOptions): Promise<number> {
  return withClient(access, async (client) => {
    await client.setTimeout(sandboxID, seconds);
    return 0;
  });
}
