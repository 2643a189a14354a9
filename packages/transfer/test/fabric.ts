// What the rdma tests share: libfabric's tcp provider, which a host without network cards has as well.
import { existsSync } from "node:fs";
import type { EngineSetup } from "./parts.ts";

const here = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"].some((folder) => existsSync(`${folder}/libfabric.so.1`));

/** For test options: the library may be missing on a laptop, and must not be in CI. */
export const needsFabric = here || process.env["CI"] === "true" ? {} : { skip: "missing on this host: libfabric; ./svc setup installs what can be installed" };

/** No other path: what rdma does not serve is not served. */
export const onFabric = {
  filter: ["lo"],
  settings: { fabric_provider: "tcp;ofi_rxm", log_level: 0, transfer_timeout_ms: 60_000 },
  transports: ["rdma"],
} as const satisfies EngineSetup;

/** A counter of the path rdma, as metrics() gives it. */
export const rdmaCount = (metrics: string, what: "requests" | "failures" | "fallbacks"): number =>
  Number(new RegExp(`^svc_transfer_${what}_total\\{path="rdma"\\} (\\d+)$`, "m").exec(metrics)?.[1]);
