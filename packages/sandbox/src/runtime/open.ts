// Opens a runtime driver by its name; the one place that knows all of them.
import { fail } from "@svc/contract/failures.ts";
import { bubblewrapEngine } from "./bubblewrap.ts";
import { rootlessEngine } from "./bubblewrap-rootless.ts";
import { type Engine, type OpenRuntime, openDriver } from "./driver.ts";
import { gvisorEngine } from "./gvisor.ts";
import { type Host, openHost, type RuntimeOptions } from "./host.ts";
import { findProgram } from "./programs.ts";
import { runcEngine } from "./runc.ts";
import type { RuntimeName } from "./runtime.ts";

export type { OpenRuntime } from "./driver.ts";
export type { RuntimeOptions } from "./host.ts";

/** @throws HOST_UNSUITABLE at once where this driver cannot work; `probe` says more. */
export async function openRuntime(name: RuntimeName, options: RuntimeOptions): Promise<OpenRuntime> {
  const root = process.getuid?.() === 0;
  if (!root && name !== "bubblewrap") fail("HOST_UNSUITABLE", `the ${name} driver needs root; a plain user has the bubblewrap driver`);
  if (name === "gvisor") await findProgram("runsc", options.programs?.runsc);
  if (name === "runc") await findProgram("runc", options.programs?.runc);
  if (name === "bubblewrap") await findProgram("bwrap", options.programs?.bwrap);
  const host = await openHost(name, options);
  return openDriver(host, await engineOf(name, host, root));
}

async function engineOf(name: RuntimeName, host: Host, root: boolean): Promise<Engine> {
  switch (name) {
    case "gvisor":
      return gvisorEngine(host);
    case "runc":
      return runcEngine(host);
    case "bubblewrap":
      return root ? bubblewrapEngine(host) : rootlessEngine(host);
  }
}
