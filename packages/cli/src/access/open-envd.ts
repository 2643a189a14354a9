// Opens a sandbox for verbs that work inside it: a paused sandbox is refused, unless traffic may resume it.
import { hasBytes, shownText } from "@svc/contract/byte-text.ts";
import type { SvcClient } from "@svc/contract/client.ts";
import { fail } from "@svc/contract/failures.ts";
import type { SandboxDetail } from "@svc/contract/sandbox.ts";

/** @throws SANDBOX_NOT_FOUND, SANDBOX_PAUSED. */
export async function awakeSandbox(client: SvcClient, sandboxID: string): Promise<SandboxDetail> {
  if (hasBytes(sandboxID)) fail("SANDBOX_NOT_FOUND", `there is no sandbox '${shownText(sandboxID)}'`);
  const sandbox = await client.get(sandboxID);
  if (sandbox.state === "paused" && !sandbox.lifecycle.autoResume)
    fail("SANDBOX_PAUSED", `sandbox '${sandboxID}' is paused; \`svc resume ${sandboxID}\` resumes it`);
  return sandbox;
}
