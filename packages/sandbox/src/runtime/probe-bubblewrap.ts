// Whether runc works here.
import type { Disk } from "./disk.ts";
import type { Host } from "./host.ts";
import type { RuntimeReport } from "./runtime.ts";
export async function probeBubblewrap(_host: Host, _disk: Disk): Promise<RuntimeReport> { throw new Error("x"); }
