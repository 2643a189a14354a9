// Resolves the start of a build: another template, a snapshot, an OCI image or a Debian suite.
import { fail } from "@svc/contract/failures.ts";
import type { BuildSpec, Chain } from "./build-record.ts";
import { exported, inSandbox, type Job, type Source, say } from "./builder.ts";
import { debianSource, debianSuite } from "./debian.ts";
import { imageSource } from "./oci-image.ts";

/** Images that mean the template `base`: the default of E2B's builders, and `FROM base`. */
const baseImage = /^(e2bdev\/base(:.*)?|base(:(latest|default))?)$/;
const DEFAULT_TEMPLATE = "base";

export async function resolveSource(job: Job, spec: BuildSpec): Promise<Source> {
  const { fromTemplate, fromImage } = spec;
  if (fromTemplate !== undefined) return templateSource(job, fromTemplate);
  if (fromImage === undefined || baseImage.test(fromImage)) {
    say(job, `FROM ${fromImage ?? DEFAULT_TEMPLATE}: the template ${DEFAULT_TEMPLATE}`);
    return templateSource(job, DEFAULT_TEMPLATE);
  }
  const suite = debianSuite(fromImage, job.builder.settings);
  return suite === undefined ? imageSource(job, fromImage) : debianSource(job, suite);
}

async function templateSource(job: Job, asked: string): Promise<Source> {
  const { builder } = job;
  // The name is resolved once, so a later build with that name does not change this one.
  const built = builder.builds.resolve(asked)?.build.result ?? builder.copies.get(asked)?.result;
  const template = builder.find(asked);
  const sizes = { cpuCount: template.cpuCount, memoryMB: template.memoryMB, diskSizeMB: template.diskSizeMB };
  const { env, user, workdir, strictFiles } = template;
  const names = { user: false, workdir: false };
  await builder.images.ready(template.image);
  if (built !== undefined) return { chain: built.chain, env, user, workdir, strictFiles, sizes, startup: built.startup, names };
  const chain = builder.images.chainOf(template.image);
  if (template.checkpointID === undefined) return { chain, env, user, workdir, strictFiles, sizes, startup: undefined, names };
  return { chain: await snapshotChain(job, asked, template.checkpointID, chain), env, user, workdir, strictFiles, sizes, startup: undefined, names };
}

/** Returns a snapshot's files as a layer, made once. The snapshot's processes are not part of a template built from it. */
async function snapshotChain(job: Job, asked: string, checkpointID: string, chain: Chain): Promise<Chain> {
  const { cache, layers } = job.builder;
  const key = `snapshot:${checkpointID}`;
  const known = cache.find(key)?.layerID;
  if (known === null) return chain;
  if (known !== undefined && layers.info(known) !== undefined) return { ...chain, layers: [...chain.layers, known] };
  say(job, `FROM ${asked}: the files of the snapshot`);
  const layer = await inSandbox(job, job.builder.find(asked), (_, { handle }) =>
    exported(job, handle, `snapshot ${asked}`, job.builder.images.of(chain).rootfs),
  );
  cache.keep(key, layer?.layerID);
  return layer === undefined ? chain : { ...chain, layers: [...chain.layers, layer.layerID] };
}

/** @throws INVALID_REQUEST if a build names two sources. */
export function checkSource({ fromImage, fromTemplate }: Pick<BuildSpec, "fromImage" | "fromTemplate">): void {
  if (fromImage !== undefined && fromTemplate !== undefined) fail("INVALID_REQUEST", "fromImage and fromTemplate: expected exactly one of them");
}
