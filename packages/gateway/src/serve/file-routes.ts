// Files go straight to their node through the proxy; these routes answer, after the key check, requests whose node is down or unknown.
import { Failure, fail } from "@svc/contract/failures.ts";
import type { RawScope } from "@svc/kit/serve.ts";
import type { Members } from "../members/members.ts";
import { nodeLost } from "./relay.ts";

export function fileRoutes(members: Members): (scope: RawScope) => void {
  return (scope) => {
    scope.get("/snapshots/:snapshotID/export", { config: { operation: "exportSnapshot" } as object }, (request) => {
      const { snapshotID } = request.params as { snapshotID: string };
      const holder = members.all.find((member) => member.held(snapshotID) !== undefined);
      if (holder !== undefined) throw nodeLost(holder, `snapshot '${snapshotID}'`);
      fail("SNAPSHOT_NOT_FOUND", `snapshot '${snapshotID}' was not found on any node that answers; \`svc snapshot list\` lists them`);
    });
    scope.post("/snapshots/import", { config: { operation: "importSnapshot" } as object }, () => {
      throw new Failure("SERVER_UNREACHABLE", "no node of this deployment answers; GET /nodes says why", { retryAfterSeconds: 1 });
    });
    scope.put("/templates/uploads/:hash", { config: { open: true, operation: "uploadFiles" } as object }, () =>
      fail("ACCESS_DENIED", "this URL was not issued by a node of this deployment that answers; request a new one"),
    );
  };
}
