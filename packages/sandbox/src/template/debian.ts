// Builds from debian:SUITE without a registry: mmdebstrap makes the root in a sandbox of the base template, from that template's mirrors.
import { readdir, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import { hold, inSandbox, type Job, layered, type Source, say, templateOf } from "./builder.ts";
import { prepare } from "./prepare.ts";
import { runLogged, shellOf } from "./run-step.ts";
import type { TemplateSettings } from "./settings.ts";

/** The path of the new root in the sandbox; its content becomes a layer of its own. */
const INSIDE = "var/tmp/svc-root";
const MIB = 1024 * 1024;
const MIN_DISK_MB = 4096;
/** A cached root is replaced after this time, to include the suite's updates. */
const KEPT_MS = 24 * 3600_000;

/**
 * The mirror comes from the sandbox's own apt sources, and the requested suite replaces their suite. Mirrors also accept alias names of suites (stable).
 */
const bootstrap = `
suite=$1; root=/$2
export DEBIAN_FRONTEND=noninteractive
if ! command -v mmdebstrap >/dev/null; then
  apt-get update
  apt-get install -y --no-install-recommends mmdebstrap
fi
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Origin: Debian' | head -n 1)
[ -n "$mirror" ] || mirror=$(sed -n 's/^deb \\(\\[[^]]*\\] \\)\\{0,1\\}\\([^ ]*\\) .*/\\2/p' /etc/apt/sources.list | head -n 1)
trusted=$(grep -qs '^deb \\[[^]]*trusted=yes' /etc/apt/sources.list && echo '[trusted=yes] ' || true)
[ -n "$mirror" ] || { echo 'the base template names no Debian mirror' >&2; exit 1; }
rm -rf "$root"
mmdebstrap --mode=root --variant=minbase --include=ca-certificates,curl,git,iproute2,procps,python3,sudo \\
  --dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/usr/share/man/*' --aptopt='Acquire::Languages "none"' \\
  --skip=output/dev "$suite" "$root" "deb $trusted$mirror $suite main"
`;

/** Returns the suite that an image name means, if no registry is configured that would have such an image. */
export function debianSuite(image: string, { registry }: Pick<TemplateSettings, "registry">): string | undefined {
  const suite = /^debian(?::([a-z][a-z0-9-]*))?$/.exec(image);
  if (suite === null || registry !== "") return undefined;
  return (suite[1] ?? "stable").replace(/-slim$/, "").replace(/^latest$/, "stable");
}

export async function debianSource(job: Job, suite: string): Promise<Source> {
  const layerID = (await cached(job, suite)) ?? (await bootstrapped(job, suite));
  const chain = await prepare(job, { base: undefined, layers: [layerID] }, layered);
  return {
    chain,
    env: {},
    user: "user",
    workdir: "/home/user",
    names: { user: false, workdir: false },
    sizes: { cpuCount: 2, memoryMB: 1024, diskSizeMB: MIN_DISK_MB },
    startup: undefined,
  };
}

const keyOf = (suite: string) => `debian:${suite}`;

async function cached(job: Job, suite: string): Promise<string | undefined> {
  const { cache, layers, nowMs } = job.builder;
  if (job.build.spec?.force === true) return undefined;
  const { layerID = null, madeAtMs = 0 } = cache.find(keyOf(suite)) ?? {};
  if (layerID === null || layers.info(layerID) === undefined || madeAtMs < nowMs() - KEPT_MS) return undefined;
  say(job, `FROM debian:${suite} (cached)`);
  hold(job, layerID);
  return layerID;
}

async function bootstrapped(job: Job, suite: string): Promise<string> {
  const { builder } = job;
  say(job, `FROM debian:${suite}: mmdebstrap in a sandbox of base`);
  const base = builder.find("base");
  if (base.image.binds.length > 0) fail("INVALID_REQUEST", `debian:${suite} needs a base template with apt; here base stands for host, see ./svc doctor`);
  await builder.images.ready(base.image);
  const chain = builder.images.chainOf(base.image);
  job.sizes = { ...job.sizes, diskSizeMB: Math.max(MIN_DISK_MB, job.sizes.diskSizeMB), memoryMB: Math.max(1024, job.sizes.memoryMB) };
  const layer = await inSandbox(job, templateOf(job, chain), async (guest, { handle }) => {
    const code = await runLogged(job, guest, { cmd: await shellOf(job, guest), args: ["-euc", bootstrap, "svc", suite, INSIDE], user: "root", cwd: "/" });
    if (code !== 0) fail("INVALID_REQUEST", `debian:${suite} could not be created: mmdebstrap ended with ${code}; see the build's log`);
    return builder.layers.add(`debian:${suite}`, async (diff) => {
      await builder.sandboxes.runtimeOf(handle).exportLayer(handle, diff);
      await keepOnlyRoot(diff);
    });
  });
  if (layer === undefined || layer.sizeBytes < MIB) return fail("INTERNAL", `mmdebstrap of ${suite} left no root`);
  hold(job, layer.layerID);
  builder.cache.keep(keyOf(suite), layer.layerID);
  return layer.layerID;
}

/** Replaces the layer's content with the new root, since the sandbox's other changes do not matter. */
async function keepOnlyRoot(diff: string): Promise<void> {
  const moved = `${diff}.root`;
  await rename(join(diff, INSIDE), moved);
  for (const name of await readdir(diff)) await rm(join(diff, name), { recursive: true, force: true });
  for (const name of await readdir(moved)) await rename(join(moved, name), join(diff, name));
  await rm(moved, { recursive: true, force: true });
}
