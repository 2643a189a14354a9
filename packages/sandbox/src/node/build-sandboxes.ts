// The sandboxes that template builds work in: started like any other, owned by nobody, under the egress rules of all.
import { fail } from "@svc/contract/failures.ts";
import { openEgress } from "../network/networks.ts";
import type { BuildSandboxes } from "../template/workshop.ts";
import { endSandbox } from "./end.ts";
import type { Node } from "./node.ts";
import { startWarm } from "./start.ts";

/** The node is there before the first build begins. */
export function buildSandboxes(node: () => Node): BuildSandboxes {
  return {
    async start(template) {
      const { sandboxID, status, limits, envd, envdVersion } = await node().gate.run(() => startWarm(node(), template, openEgress));
      if (status.state !== "warm") fail("SANDBOX_START_FAILED", "the build's sandbox ended at once");
      return { sandboxID, handle: status.handle, limits, envd, envdVersion };
    },
    end: (sandboxID) => endSandbox(node(), sandboxID, "killed"),
    runtimeOf: (handle) => node().runtimeNamed(handle.runtime),
  };
}
