// `svc transfer …`: copies to and from a segment, measures it, and shows its path.
import { runTool } from "./tool.ts";
import { transfer, transferHelp } from "./transfer.ts";

export function main(argv: readonly string[]): Promise<number> {
  return runTool({ name: "transfer", help: transferHelp, verbs: ["write", "read", "bench", "doctor", "serve"], run: transfer }, argv);
}
