// Builds a template that svc has a recipe for when a sandbox of it is first created; later creates wait for that build.
import { setTimeout as sleep } from "node:timers/promises";
import { openContext } from "@svc/contract/build-context.ts";
import type { PlannedStep } from "@svc/contract/dockerfile-step.ts";
import { Failure, fail } from "@svc/contract/failures.ts";
import { checkMemory, type Recipe, recipeFolder, recipePlan, recipes, whyNotOffered } from "@svc/contract/recipes.ts";
import type { Build } from "./build-record.ts";
import type { Templates } from "./open-templates.ts";
import { DEFAULT_TAG, splitReference } from "./reference.ts";

/** SDKs give up after 60 s without an answer, so the refusal must arrive before. */
const WAIT_MS = 45_000;
const POLL_MS = 250;
const RETRY_AFTER_SECONDS = 20;
/** After a failed build, a create starts another one only after this time. */
const AGAIN_AFTER_MS = 60_000;

export type BuildOnFirstUse = (asked: string) => Promise<string | undefined>;

/** Refuses a template that E2B has and svc cannot have, if nobody has built one of that name. @throws NOT_OFFERED. */
export function refuseNotOffered(asked: string): undefined {
  const why = whyNotOffered(splitReference(asked).name);
  if (why !== undefined) fail("NOT_OFFERED", why);
  return undefined;
}

/** Returns the template's name once it is ready, or undefined if there is no recipe for it. @throws TEMPLATE_BUILDING. */
export function openFirstUse(
  { builder: { builds, uploads }, queue }: Pick<Templates, "builder" | "queue">,
  { memory_mb }: { readonly memory_mb: number },
  nowMs = Date.now,
): BuildOnFirstUse {
  const beginning = new Map<string, Promise<Build>>();

  async function begin(recipe: Recipe): Promise<Build> {
    const { name, cpuCount, memoryMB, diskSizeMB, readyCmd } = recipe;
    const plan = await recipePlan(recipe);
    const context = await openContext(recipeFolder(recipe));
    const steps: PlannedStep[] = [];
    for (const step of plan.steps) {
      if (step.type !== "COPY") steps.push(step);
      else {
        const source = step.args[0] ?? "";
        const filesHash = await context.hash(source);
        if (!uploads.has(filesHash)) await context.packed(source, ({ sizeBytes, open }) => uploads.receive(filesHash, String(sizeBytes), open()));
        steps.push({ ...step, filesHash });
      }
    }
    const { build } = builds.request(name, [DEFAULT_TAG], { cpuCount, memoryMB, diskSizeMB });
    const { fromImage, startCmd } = plan;
    const spec = { fromImage, fromTemplate: undefined, needsCredentials: false, steps, startCmd, readyCmd, force: false, dockerfile: true };
    try {
      queue.start(build, spec, undefined);
    } catch (error) {
      builds.abandon(build.buildID);
      throw error;
    }
    return build;
  }

  /** Returns the build to wait for: the template's newest, unless that failed some time ago. */
  function current(recipe: Recipe): Promise<Build> {
    const known = builds.template(recipe.name);
    const [newest] = known === undefined ? [] : builds.of(known.templateID);
    const isPending = newest?.status === "building" || (newest?.status === "waiting" && newest.spec !== undefined);
    const failedAtMs = newest?.status === "error" ? (newest.finishedAtMs ?? 0) : 0;
    if (newest !== undefined && (isPending || nowMs() - failedAtMs < AGAIN_AFTER_MS)) return Promise.resolve(newest);
    const begun = beginning.get(recipe.name) ?? begin(recipe).finally(() => beginning.delete(recipe.name));
    beginning.set(recipe.name, begun);
    return begun;
  }

  return async (asked) => {
    const { name, tag } = splitReference(asked);
    const recipe = recipes.find((each) => each.name === name);
    if (recipe === undefined || (tag !== undefined && tag !== DEFAULT_TAG)) return undefined;
    checkMemory(recipe, memory_mb);
    const { buildID } = await current(recipe);
    const untilMs = performance.now() + WAIT_MS;
    for (;;) {
      const build = builds.build(buildID);
      if (build === undefined) return undefined;
      if (build.status === "ready") return name;
      if (build.status === "error") throw refusal(`could not be built: ${build.reason?.message ?? "its log says why"}`, name, AGAIN_AFTER_MS / 1000);
      if (performance.now() > untilMs) throw refusal(`is being built on its first use (${stepOf(build)})`, name, RETRY_AFTER_SECONDS);
      await sleep(POLL_MS);
    }
  };
}

function stepOf({ step, spec }: Build): string {
  return step === undefined || !/^\d+$/.test(step) ? (step ?? "it waits for others") : `step ${step} of ${spec?.steps.length ?? "?"}`;
}

function refusal(what: string, name: string, retryAfterSeconds: number): Failure {
  return new Failure("TEMPLATE_BUILDING", `template '${name}' ${what}; \`svc template logs ${name}\` shows the build; try again later`, { retryAfterSeconds });
}
