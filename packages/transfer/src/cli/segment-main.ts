// `svc segment …`: creates, mounts, shows and lists the records of segments.
import { segment, segmentHelp } from "./segment.ts";
import { runTool } from "./tool.ts";

export function main(argv: readonly string[]): Promise<number> {
  return runTool({ name: "segment", help: segmentHelp, verbs: ["register", "mount", "show", "list"], run: segment }, argv);
}
