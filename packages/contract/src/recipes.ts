// The templates that svc has a recipe for: a folder of this tree with a Dockerfile, built by `svc template add` or on first use.
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { planFromDockerfile } from "./dockerfile.ts";

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
];

export function recipeFolder({ word }: Recipe): string {
  return join(import.meta.dirname, "../../../setup/templates", word);
}

export async function recipePlan(recipe: Recipe) {
  return planFromDockerfile(await readFile(join(recipeFolder(recipe), "Dockerfile"), "utf8"));
}
