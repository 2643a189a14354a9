// The paths of the control plane: those of operations that need a key, and those that answer "not offered".
import { nodeControlOperations } from "./node-control.ts";
import { nodesOperations } from "./nodes.ts";
import { pathsNotOffered } from "./not-offered.ts";
import { nodeOperations } from "./sandbox.ts";

const operations = Object.values({ ...nodeOperations, ...nodesOperations, ...nodeControlOperations });
const withKey = operations.filter(({ credential }) => credential === "apiKey").map(({ path }) => path);
const words: ReadonlySet<string> = new Set([...withKey, ...pathsNotOffered].map(firstWord));

/** Returns true if a request's target begins, after an optional version (`/v2`), with the first word of such a path. */
export function isControlPath(target: string): boolean {
  const word = firstWord(target);
  return word !== "" && words.has(word);
}

function firstWord(target: string): string {
  return /^(?:\/v\d+)?\/([a-z-]+)(?=[/?#]|$)/.exec(target)?.[1] ?? "";
}
