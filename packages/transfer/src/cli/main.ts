// `svc transfer …`: copies to and from a segment, measures it, and shows its path.
import { runTool } from "./tool.ts";
import { transfer, transferTool } from "./transfer.ts";

export function main(argv: readonly string[]): Promise<number> {
  return runTool({ ...transferTool, run: transfer }, argv);
}
