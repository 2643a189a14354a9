// Proves that a driver works here: starts a real sandbox on the host's own /usr, measures it idle, and ends it.
import { randomUUID } from "node:crypto";
import { existsSync, lstatSync, readlinkSync } from "node:fs";
import { mkdir, mkdtemp, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { ENVD_PORT } from "@svc/contract/envd-http.ts";
import { asFailure } from "@svc/contract/failures.ts";
import type { NetworkSlot } from "../network/networks.ts";
import type { Host } from "./host.ts";
import type { Capability, RootImage, Runtime } from "./runtime.ts";

export type Proof = { readonly usable: Capability; readonly idleMB: number };

const SETTLE_MS = 300;
const BYTES_PER_MB = 1024 * 1024;
const probeID = () => `probe${String(process.pid).padStart(8, "0")}${String(Date.now() % 1e7).padStart(7, "0")}`;

export async function prove(host: Host, runtime: Pick<Runtime, "name" | "start" | "destroy" | "usage" | "isAlive">): Promise<Proof> {
  const folder = await mkdtemp(join(tmpdir(), "svc-probe-"));
  const runtimeID = probeID();
  const network = process.getuid?.() === 0 ? emptySlot(runtimeID) : undefined;
  const directory = join(folder, "sandbox");
  try {
    if (network !== undefined) await host.spawner.check(["ip", "netns", "add", network.netns]);
    const beganAt = performance.now();
    const handle = await runtime.start({
      runtimeID,
      directory,
      image: await skeleton(join(folder, "rootfs")),
      limits: { cpuCount: 1, memoryMB: 256, diskSizeMB: 64, pids: 64 },
      hostname: "probe",
      bootID: randomUUID(),
      network,
      envd:
        host.envd === undefined
          ? { binary: "/usr/bin/sleep", args: ["60"], env: {} }
          : { binary: host.envd, args: ["-listen", `0.0.0.0:${ENVD_PORT}`], env: {} },
    });
    const startMs = Math.round(performance.now() - beganAt);
    await sleep(SETTLE_MS);
    if (!runtime.isAlive(handle)) return { usable: { works: false, says: "a sandbox starts and ends at once" }, idleMB: 0 };
    const { memoryBytes } = await runtime.usage(handle);
    return { usable: { works: true, says: `a sandbox started in ${startMs} ms` }, idleMB: Math.round((memoryBytes / BYTES_PER_MB) * 10) / 10 };
  } catch (error) {
    return { usable: { works: false, says: asFailure(error).message, fix: "see the other lines of `svc doctor`" }, idleMB: 0 };
  } finally {
    await runtime.destroy({ runtimeID, directory }).catch(() => {});
    if (network !== undefined) await host.spawner.run(["ip", "netns", "del", network.netns]).catch(() => {});
    await rm(folder, { recursive: true, force: true });
  }
}

/** A namespace without any address or route. */
function emptySlot(name: string): NetworkSlot {
  const netns = `svc-${name}`;
  return { index: 0, netns, netnsPath: `/run/netns/${netns}`, veth: "", guestAddress: "127.0.0.1", prefixLength: 32, gatewayAddress: "127.0.0.1" };
}

/** Creates empty directories around the host's own /usr. */
async function skeleton(rootfs: string): Promise<RootImage> {
  for (const name of ["dev", "etc", "home/user", "proc", "root", "run", "sys", "tmp", "usr", "var/tmp", ".svc"])
    await mkdir(join(rootfs, name), { recursive: true });
  const binds = ["/usr"];
  for (const name of ["bin", "lib", "lib32", "lib64", "sbin"]) {
    if (!existsSync(`/${name}`)) continue;
    if (lstatSync(`/${name}`).isSymbolicLink()) await symlink(readlinkSync(`/${name}`), join(rootfs, name));
    else {
      await mkdir(join(rootfs, name));
      binds.push(`/${name}`);
    }
  }
  return { rootfs, binds };
}
