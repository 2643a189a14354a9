// Describes a build of a template for a transfer: with the memory that its start command left, or its files only.
import type { Checkpoints } from "../records/checkpoints.ts";
import type { Copy } from "../template/copies.ts";
import type { Images } from "../template/images.ts";
import { type BaseFile, type DescribeParts, describe, describeAlone, type Source } from "./describe.ts";
import type { TransferParts } from "./template-manifest.ts";

export type DescribeBuildParts = {
  readonly describing: DescribeParts;
  readonly checkpoints: Pick<Checkpoints, "holding">;
  readonly images: Pick<Images, "of">;
};

/** The described files are kept while `work` runs. Without `baseFile` the base's files are not transferred. @throws what `describe` throws. */
export async function withBuild<T>(
  { describing, checkpoints, images }: DescribeBuildParts,
  { result }: Copy,
  baseFile: BaseFile | undefined,
  work: (parts: TransferParts, sources: readonly Source[]) => Promise<T>,
): Promise<T> {
  const { chain, checkpointID, runtime, limits, envd, envdVersion } = result;
  const image = images.of(chain);
  if (checkpointID === undefined || runtime === undefined || limits === undefined || envd === undefined) {
    await using described = await describeAlone(describing, image, baseFile);
    return work({ image: described.image }, described.sources);
  }
  return checkpoints.holding(checkpointID, async () => {
    const subject = { checkpointID, kind: "memory" as const, runtime, limits, image, envd, envdVersion };
    await using described = await describe(describing, subject, baseFile);
    return work({ memory: described.manifest }, described.sources);
  });
}
