// Shared by the rdma tests: libfabric's tcp provider, which also works on a host without RDMA devices.
import { existsSync } from "node:fs";
import type { EngineSetup } from "./parts.ts";

const here = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"].some((folder) => existsSync(`${folder}/libfabric.so.1`));

/** Test options: the library may be missing on a laptop, but must not be in CI. */
export const needsFabric = here || process.env["CI"] === "true" ? {} : { skip: "missing on this host: libfabric; ./svc setup installs what can be installed" };

/** Only rdma is installed, so that no other path can serve a request. */
export const onFabric = {
  filter: ["lo"],
  settings: { fabric_provider: "tcp;ofi_rxm", log_level: 0, transfer_timeout_ms: 60_000 },
  transports: ["rdma"],
} as const satisfies EngineSetup;

/** Reads a counter of the rdma path from the metrics. */
export const rdmaCount = (metrics: string, what: "requests" | "failures" | "fallbacks"): number =>
  Number(new RegExp(`^svc_transfer_${what}_total\\{path="rdma"\\} (\\d+)$`, "m").exec(metrics)?.[1]);
