// Secrets at a gateway: each node keeps its own, so a gateway offers none of them yet.
import { fail } from "@svc/contract/failures.ts";
import type { secretOperations } from "@svc/contract/secrets.ts";
import type { Handlers } from "@svc/kit/serve.ts";

const refuse = (): never =>
  fail(
    "NOT_OFFERED",
    "svc does not offer secrets through a gateway yet; each node keeps those of its own sandboxes: send the request to the node's address. GET /docs lists every operation that svc offers",
  );

export const secretHandlers: Handlers<typeof secretOperations> = {
  createSecret: refuse,
  listSecrets: refuse,
  getSecret: refuse,
  updateSecret: refuse,
  deleteSecret: refuse,
  getEgressAuthority: refuse,
};
