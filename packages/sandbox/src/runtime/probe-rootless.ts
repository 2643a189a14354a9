// Whether gVisor works on this host.
import type { Host } from "./host.ts";
import type { RuntimeReport } from "./runtime.ts";
export async function probeRootless(_host: Host): Promise<RuntimeReport> { throw new Error("todo"); }
