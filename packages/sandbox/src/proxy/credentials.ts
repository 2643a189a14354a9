// Decides which requests may reach a port of a sandbox, and which credentials are removed.
import { spellingFor } from "@svc/contract/sdk-key.ts";
import { type Answer, answer } from "@svc/kit/proxy/answer.ts";
import type { HeaderIDs } from "@svc/kit/proxy/header-ids.ts";
import type { NamedKeys } from "@svc/kit/proxy/own-keys.ts";
import type { RequestHead } from "@svc/kit/proxy/request-head.ts";
import type { Access } from "../records/directory.ts";
import { isSignedFile } from "./envd-paths.ts";
import { sameText } from "./same-text.ts";

/** Refuses a header that came with two values: the next server might read another one than this proxy checked. */
export function conflictOf(head: RequestHead, ids: HeaderIDs): Answer | undefined {
  if (!head.agrees(ids.accessToken)) return answer(400, "X-Access-Token was sent twice with different values");
  if (!head.agrees(ids.apiKey)) return answer(400, "X-API-Key was sent twice with different values");
  return undefined;
}

/** envd of a secure sandbox requires X-Access-Token on every path; only a signed file URL needs no token. */
export function refuseEnvd(head: RequestHead, ids: HeaderIDs, access: Access, target: string): Answer | undefined {
  if (!access.secure) return undefined;
  if (head.carries(ids.accessToken, access.envdAccessToken)) return undefined;
  if (!head.has(ids.accessToken)) {
    if (isSignedFile(target)) return undefined;
    return answer(401, "This sandbox is secure: send its envdAccessToken in the header X-Access-Token");
  }
  return answer(401, "The X-Access-Token is not the envdAccessToken of this sandbox");
}

/** Applications of a sandbox with private traffic require its traffic token, in any of the header's spellings. */
export function refuseTraffic(head: RequestHead, ids: HeaderIDs, access: Access, headerName: string): Answer | undefined {
  if (!access.trafficPrivate) return undefined;
  let right = false;
  for (const id of ids.trafficTokens) {
    if (!head.has(id)) continue;
    if (!head.agrees(id) || !head.carries(id, access.trafficAccessToken)) return answer(403, `The ${headerName} is not the trafficAccessToken of this sandbox`);
    right = true;
  }
  if (right) return undefined;
  return answer(403, `This sandbox does not allow public traffic: send its trafficAccessToken in the header ${headerName}`);
}

/** Says whether X-Access-Token is this sandbox's own, which an application must not see. Any other value is application data. */
export function carriesOwnToken(head: RequestHead, ids: HeaderIDs, access: Access): boolean {
  return head.carries(ids.accessToken, access.envdAccessToken);
}

/** Says whether Authorization: Bearer carries a key of the platform, as some clients send it by mistake. Otherwise the header is the application's. */
export function carriesKeyAsBearer(head: RequestHead, ids: HeaderIDs, apiKey: string, named: NamedKeys | undefined): boolean {
  if (!head.has(ids.authorization)) return false;
  return head.values(ids.authorization).some((value) => {
    const [scheme = "", secret = ""] = value.split(/ +/, 2);
    return scheme.toLowerCase() === "bearer" && (sameText(secret, spellingFor(secret, apiKey)) || named?.knows(secret) === true);
  });
}
