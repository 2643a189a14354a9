// `svc template add`: builds a template that svc has a recipe for.
import { recipeFolder, recipes, whyNotOffered } from "@svc/contract/recipes.ts";
import { printTable } from "@svc/contract/table.ts";
import type { AccessOptions } from "../access/access.ts";
import { UsageError } from "../output/complain.ts";
import { buildTemplate } from "./build.ts";

type Options = AccessOptions & { cache: boolean; detach?: true; quiet?: true };

export async function addTemplate(word: string | undefined, options: Options): Promise<number> {
  if (word === undefined) {
    printTable(
      ["RECIPE", "TEMPLATE", "WHAT IT IS"],
      recipes.map((recipe) => [recipe.word, recipe.name, recipe.about]),
    );
    return 0;
  }
  const recipe = recipes.find((each) => each.word === word || each.name === word);
  const why = whyNotOffered(word);
  if (why !== undefined) throw new UsageError(why);
  if (recipe === undefined) throw new UsageError(`expected one of the recipes ${recipes.map((each) => each.word).join(", ")}, got "${word}"`);
  const { name, readyCmd, cpuCount: cpu, memoryMB: memory, diskSizeMB: disk } = recipe;
  return buildTemplate(recipeFolder(recipe), { ...options, name, readyCmd, cpu, memory, disk });
}
