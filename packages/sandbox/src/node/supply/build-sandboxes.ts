// The sandboxes in which template builds run: started like any other, without an owner, with the default egress policy.
import { fail } from "@svc/contract/failures.ts";
import { openEgress } from "../../egress/policy.ts";
import type { BuildSandboxes } from "../../template/builder.ts";
import type { Admission } from "./admission.ts";
import type { Drivers } from "./drivers.ts";
import type { Ends } from "./end.ts";
import type { StartWarm } from "./start.ts";

export type BuildSandboxesParts = {
  readonly admission: Pick<Admission, "run">;
  readonly start: StartWarm;
  readonly ends: Pick<Ends, "end">;
  readonly drivers: Pick<Drivers, "named">;
};

/** `parts` is called only when a build begins, since templates are opened before the parts. */
export function buildSandboxes(parts: () => BuildSandboxesParts): BuildSandboxes {
  return {
    async start(template) {
      const { admission, start } = parts();
      const { sandboxID, status, limits, envd, envdVersion, initKey } = await admission.run(() => start(template, openEgress));
      if (status.state !== "warm") fail("SANDBOX_START_FAILED", "the build's sandbox ended at once");
      return { sandboxID, handle: status.handle, limits, envd, envdVersion, initKey };
    },
    end: (sandboxID) => parts().ends.end(sandboxID, "killed"),
    runtimeOf: (handle) => parts().drivers.named(handle.runtime),
  };
}
