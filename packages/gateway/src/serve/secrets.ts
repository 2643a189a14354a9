// Secrets at a gateway: each node keeps its own, so a gateway offers none of them yet.
import { fail } from "@svc/contract/failures.ts";
import type { secretOperations } from "@svc/contract/secrets.ts";
import type { Handlers } from "@svc/kit/serve.ts";

const refuse = (): never =>
  fail(
    "NOT_OFFERED",
    "secrets are kept by each node for its own sandboxes, and a gateway does not spread them yet: send this request to the node's own address",
  );

export const secretHandlers: Handlers<typeof secretOperations> = {
  createSecret: refuse,
  listSecrets: refuse,
  getSecret: refuse,
  updateSecret: refuse,
  deleteSecret: refuse,
  getEgressAuthority: refuse,
};
