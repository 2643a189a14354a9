// 1 GiB to and from envd in a sandbox, through the node: MB/s on gVisor and on runc.

import { createSandbox } from "@svc/contract/sandbox.ts";
import { download, envdAt, peakResidentBytes, upload } from "@svc/harness/bulk.ts";
import { startNode } from "@svc/harness/node.ts";
import { type Row, report } from "./report.ts";

const SIZE_BYTES = 2 ** 30;
const rows: Row[] = [];

for (const runtime of ["runc", "gvisor"] as const) {
  await using node = await startNode({ runtime });
  const envd = envdAt(node.port, await node.call(createSandbox, { templateID: "base", timeout: 3000 }));
  await upload(envd, "/home/user/warm", 2 ** 24);
  const before = peakResidentBytes(node.pid);
  const rate = async (work: () => Promise<unknown>) => {
    const begin = performance.now();
    await work();
    return SIZE_BYTES / 1e6 / ((performance.now() - begin) / 1000);
  };
  rows.push({ what: `1 GiB up to a file in ${runtime}`, value: await rate(() => upload(envd, "/home/user/bulk", SIZE_BYTES)), unit: "MB/s" });
  rows.push({ what: `1 GiB down from a file in ${runtime}`, value: await rate(() => download(envd, "/home/user/bulk")), unit: "MB/s" });
  rows.push({ what: `growth of the node meanwhile, ${runtime}`, value: (peakResidentBytes(node.pid) - before) / 1e6, unit: "MB" });
}
report("bulk", rows, {});
