// The templates that svc has a recipe for: a folder of this tree with a Dockerfile, built by `svc template add` or on first use.
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { planFromDockerfile } from "./dockerfile.ts";
import { fail } from "./failures.ts";

export type Recipe = {
  /** The word of `svc template add`, and the recipe's folder in setup/templates. */
  readonly word: string;
  /** The name by which SDKs ask for the template. */
  readonly name: string;
  readonly about: string;
  readonly readyCmd: string;
  readonly cpuCount: number;
  readonly memoryMB: number;
  readonly diskSizeMB: number;
};

export const recipes: readonly Recipe[] = [
  {
    word: "code-interpreter",
    name: "code-interpreter-v1",
    about: "Jupyter kernels for E2B's code interpreter SDKs: Python with its usual libraries, JavaScript, TypeScript, bash",
    readyCmd: "curl -sf http://127.0.0.1:49999/health",
    cpuCount: 2,
    memoryMB: 2048,
    // The libraries are installed within this, too.
    diskSizeMB: 8192,
  },
  {
    word: "desktop",
    name: "desktop",
    about: "a desktop (Xfce, Chromium) on a virtual display for E2B's desktop SDKs, with a stream by VNC and noVNC",
    readyCmd: "/opt/svc/ready",
    cpuCount: 2,
    memoryMB: 2048,
    diskSizeMB: 8192,
  },
  {
    word: "browser",
    name: "browser",
    about: "Chromium without a window, driven from outside by its DevTools port, and inside by Playwright in Python and Node",
    readyCmd: "curl -sf http://127.0.0.1:9222/json/version",
    cpuCount: 2,
    memoryMB: 2048,
    diskSizeMB: 8192,
  },
];

/** E2B's templates for which there is no recipe: why not, and what to use instead. */
const notOffered: Readonly<Record<string, string>> = {
  "mcp-gateway":
    "it starts MCP servers from a catalogue of container images, and a sandbox runs no containers; use `svc mcp`, which gives agents sandboxes over MCP, or run an MCP server in a sandbox of another template",
};

/** Returns undefined unless E2B has the template and svc cannot have it. */
export function whyNotOffered(name: string): string | undefined {
  const why = Object.hasOwn(notOffered, name) ? notOffered[name] : undefined;
  return why === undefined ? undefined : `template '${name}' is not offered: ${why}`;
}

/** @throws INVALID_REQUEST if the node's setting gives sandboxes less memory than the recipe's programs need; with `memoryMB` 0 the template decides. */
export function checkMemory({ name, memoryMB: needed }: Recipe, memoryMB: number): void {
  if (memoryMB > 0 && memoryMB < needed)
    fail(
      "INVALID_REQUEST",
      `template '${name}' needs ${needed} MB of memory, and this node gives its sandboxes ${memoryMB}; raise sandbox.memory_mb or set it to 0`,
    );
}

export function recipeFolder({ word }: Recipe): string {
  return join(import.meta.dirname, "../../../setup/templates", word);
}

export async function recipePlan(recipe: Recipe) {
  return planFromDockerfile(await readFile(join(recipeFolder(recipe), "Dockerfile"), "utf8"));
}
