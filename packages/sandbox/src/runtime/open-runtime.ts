// Opens a runtime driver by its name; only this file knows all drivers.
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

/** @throws HOST_UNSUITABLE if this driver cannot work here; `probe` gives details. */
export async function openRuntime(name: RuntimeName, options: RuntimeOptions): Promise<OpenRuntime> {
  const root = process.getuid?.() === 0;
  if (!root && name !== "bubblewrap") fail("HOST_UNSUITABLE", `the ${name} driver needs root; without root use the bubblewrap driver`);
  if (name === "gvisor") await findProgram("runsc", options.programs?.runsc);
  if (name === "runc") await findProgram("runc", options.programs?.runc);
  if (name === "bubblewrap") await findProgram("bwrap", options.programs?.bwrap);
  return openToEnd(name, options);
}

/** Opens a driver without its program, so that a node that no longer uses the driver can still destroy the sandboxes that it started. */
export async function openToEnd(name: RuntimeName, options: RuntimeOptions): Promise<OpenRuntime> {
  const host = await openHost(name, options);
  return openDriver(host, await engineOf(name, host, process.getuid?.() === 0));
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
