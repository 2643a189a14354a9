// The template code-interpreter-v1 for tests: whole, or small with the kernels of Python and bash alone, which is built in seconds.
import { cp, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openContext, uploadFiles } from "@svc/contract/build-context.ts";
import { SvcClient } from "@svc/contract/client.ts";
import { planFromDockerfile } from "@svc/contract/dockerfile.ts";
import { recipeFolder, recipes } from "@svc/contract/recipes.ts";
import type { TestNode } from "./node.ts";

export const interpreterRecipe = recipes.find(({ word }) => word === "code-interpreter") ?? failRecipe();

function failRecipe(): never {
  throw new Error("there is no recipe named code-interpreter");
}

/** Builds the recipe without the libraries and without Node, under the name that the SDKs ask for. */
export async function buildSmallInterpreter(node: Pick<TestNode, "url" | "apiKey">): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "svc-interpreter-"));
  try {
    await cp(recipeFolder(interpreterRecipe), folder, { recursive: true });
    for (const name of ["javascript", "typescript"]) await rm(join(folder, "kernels", name), { recursive: true });
    const dockerfile = await readFile(join(folder, "Dockerfile"), "utf8");
    const small = dockerfile.replace(/^RUN .*(install-node\.sh|libraries\.txt)\n/gm, "");
    await buildFrom(node, folder, small);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function buildFrom({ url, apiKey }: Pick<TestNode, "url" | "apiKey">, folder: string, dockerfile: string): Promise<void> {
  const { templates } = new SvcClient({ baseURL: url, apiKey });
  const { name, readyCmd, cpuCount, memoryMB } = interpreterRecipe;
  const plan = planFromDockerfile(dockerfile);
  const { templateID, buildID } = await templates.request({ name, cpuCount, memoryMB });
  const steps = await uploadFiles(plan.steps, await openContext(folder), (hash) => templates.files(templateID, hash));
  const { fromImage, startCmd } = plan;
  await templates.start({
    templateID,
    buildID,
    fromImage,
    steps: steps.map((step) => ({ ...step })),
    dockerfile: true,
    readyCmd,
    ...(startCmd && { startCmd }),
  });
  const entries = templates.follow({ templateID, buildID });
  const lines: string[] = [];
  for (;;) {
    const next = await entries.next();
    if (next.done !== true) lines.push(next.value.message);
    else if (next.value?.status === "ready") return;
    else throw new Error(`the interpreter was not built: ${next.value?.reason?.message}\n${lines.slice(-40).join("\n")}`);
  }
}
