// A build of a template as it leaves a node: with the memory that its start command left, or the files alone.
import type { Captures } from "../records/captures.ts";
import type { Copy } from "../template/copies.ts";
import type { Images } from "../template/images.ts";
import { type BaseFile, type DescribeParts, describe, describeAlone, type Source } from "./describe.ts";
import type { TravelParts } from "./template-manifest.ts";

export type DescribeBuildParts = {
  readonly describing: DescribeParts;
  readonly captures: Pick<Captures, "holding">;
  readonly images: Pick<Images, "of">;
};

/** What was described stays while `work` runs. `baseFile`: absent where set-up's files do not travel along. @throws what `describe` throws. */
export async function withBuild<T>(
  { describing, captures, images }: DescribeBuildParts,
  { result }: Copy,
  baseFile: BaseFile | undefined,
  work: (parts: TravelParts, sources: readonly Source[]) => Promise<T>,
): Promise<T> {
  const { chain, captureID, runtime, limits, envd, envdVersion } = result;
  const image = images.of(chain);
  if (captureID === undefined || runtime === undefined || limits === undefined || envd === undefined) {
    await using described = await describeAlone(describing, image, baseFile);
    return work({ image: described.image }, described.sources);
  }
  return captures.holding(captureID, async () => {
    const subject = { captureID, kind: "memory" as const, runtime, limits, image, envd, envdVersion };
    await using described = await describe(describing, subject, baseFile);
    return work({ memory: described.manifest }, described.sources);
  });
}
