// The handshake on each connection to a master.
import { fail } from "@svc/contract/failures.ts";
import type { RpcClient } from "../../rpc/client.ts";
import { HANDSHAKE_VERSION } from "../../rpc/version.ts";
import { refusal } from "./refusal.ts";

/** Refuses a master of another version. @throws HOST_UNSUITABLE. */
export async function greet(rpc: RpcClient): Promise<void> {
  const version = await rpc.call("ServiceReady");
  if (!version.ok) throw refusal(version.code, "asking the master for its version");
  if (version.value !== HANDSHAKE_VERSION)
    fail(
      "HOST_UNSUITABLE",
      `the store's master speaks version ${JSON.stringify(version.value)}, this client ${HANDSHAKE_VERSION}: use clients and master of one release`,
    );
}
