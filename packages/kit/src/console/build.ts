// Starts the build of a template from a Dockerfile that was typed into the console or dropped there; it has no build context.
import type { SvcClient } from "@svc/contract/client.ts";
import type { BuildName } from "@svc/contract/client-templates.ts";
import { planFromDockerfile } from "@svc/contract/dockerfile.ts";
import { fail } from "@svc/contract/failures.ts";

/** @throws INVALID_REQUEST with the line of the Dockerfile that is wrong. */
export async function buildFromDockerfile(client: SvcClient, body: Readonly<Record<string, unknown>>): Promise<BuildName & { notes: readonly string[] }> {
  const { name, dockerfile, cpuCount, memoryMB } = body;
  if (typeof name !== "string" || name === "") fail("INVALID_REQUEST", "name: expected the template's name");
  if (typeof dockerfile !== "string" || dockerfile.trim() === "") fail("INVALID_REQUEST", "dockerfile: expected the text of a Dockerfile");
  const plan = planFromDockerfile(dockerfile);
  if (plan.steps.some(({ type, from }) => type === "COPY" && from === undefined))
    fail("INVALID_REQUEST", "the Dockerfile copies files, which the console does not have: build it by ./svc template build DIRECTORY --name NAME");
  const size = { ...(typeof cpuCount === "number" ? { cpuCount } : {}), ...(typeof memoryMB === "number" ? { memoryMB } : {}) };
  const { templateID, buildID } = await client.templates.request({ name, ...size });
  try {
    await client.templates.start({
      templateID,
      buildID,
      fromImage: plan.fromImage,
      steps: plan.steps.map((step) => ({ ...step })),
      dockerfile: true,
      ...(plan.startCmd === undefined ? {} : { startCmd: plan.startCmd }),
      ...(plan.readyCmd === undefined ? {} : { readyCmd: plan.readyCmd }),
    });
  } catch (error) {
    // The build was refused before it began, so the template without a build is cancelled.
    await client.templates.cancel({ templateID, buildID }).catch(() => undefined);
    throw error;
  }
  return { templateID, buildID, notes: plan.notes };
}
