// Receives a build of another node's template: verifies its files, puts them in place, then records it as a copy.
import { Failure, fail } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Report } from "../observe/open-observe.ts";
import type { Checkpoints } from "../records/checkpoints.ts";
import type { Copies } from "../template/copies.ts";
import type { Images } from "../template/images.ts";
import type { Placing } from "./placing.ts";
import { type ReceiveParts, receive, receiveImage } from "./receive.ts";
import { type Arrived, copyOf, type TemplateManifest } from "./template-manifest.ts";
import type { TransferMetrics } from "./transfer-metrics.ts";

export type ArriveBuildParts = {
  readonly checkpoints: Pick<Checkpoints, "remove">;
  readonly images: Pick<Images, "chainOf">;
  readonly copies: Pick<Copies, "add">;
  readonly receiving: ReceiveParts;
  readonly metrics: Pick<TransferMetrics, "timed">;
  readonly report: Report;
  readonly log: Log;
};

/**
 * `from` is a phrase for messages. `mustStill` runs before the copy is recorded; if it throws, nothing stays. @throws what `receive`, `fetch` and
 * `mustStill` throw.
 */
export async function arriveBuild(
  parts: ArriveBuildParts,
  manifest: TemplateManifest,
  from: string,
  fetch: (placing: Placing) => Promise<void>,
  mustStill: () => Promise<void> = async () => {},
): Promise<void> {
  const { checkpoints, images, copies, metrics, report, log } = parts;
  const { buildID, templateID, name, memory, image } = manifest;
  const begin = performance.now();

  async function take(): Promise<Arrived & { readonly movedBytes: number }> {
    if (memory !== undefined) {
      const read = { manifest: memory, isOwn: true };
      const received = await receive(parts.receiving, read, fetch, parts.receiving.checkpoints.newID(), templateID);
      return { chain: images.chainOf(received.image), checkpointID: received.checkpointID, movedBytes: received.movedBytes };
    }
    const received = await receiveImage(parts.receiving, image ?? fail("SNAPSHOT_DAMAGED", "its manifest lists no files"), fetch);
    return { chain: images.chainOf(received.image), movedBytes: received.movedBytes };
  }

  const { movedBytes, ...arrived } = await metrics.timed("import", take).catch((error: unknown) => {
    if (!(error instanceof Failure)) throw error;
    const said = `build ${buildID} of template '${name}' could not be fetched from ${from}: ${error.message}`;
    throw new Failure(error.name, said, { cause: error, details: error.details });
  });
  try {
    await mustStill();
    copies.add(copyOf(manifest, arrived));
  } catch (error) {
    if (arrived.checkpointID !== undefined) await checkpoints.remove(arrived.checkpointID);
    throw error;
  }
  report("template.imported", { templateID }, { buildID, movedBytes });
  log.info({ templateID, name, buildID, movedBytes, ms: Math.round(performance.now() - begin) }, `a template was fetched from ${from}`);
}
