// `svc segment …`: creates, mounts, shows and lists the records of segments.
import { segment, segmentTool } from "./segment.ts";
import { runTool } from "./tool.ts";

export function main(argv: readonly string[]): Promise<number> {
  return runTool({ ...segmentTool, run: segment }, argv);
}
