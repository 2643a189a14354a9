// `svc template build`: builds a template from a Dockerfile, an image or a template; uploads its files and prints its log.
import { resolve } from "node:path";
import { type BuildContext, openContext, uploadFiles } from "@svc/contract/build-context.ts";
import type { SvcClient } from "@svc/contract/client.ts";
import type { BuildName, RequestedTemplate } from "@svc/contract/client-templates.ts";
import { type OutputFormat, outputFormat, printJSON, printTable } from "@svc/contract/table.ts";
import { type AccessOptions, withClient } from "../access/access.ts";
import { ForeseenError, remark } from "../output/complain.ts";
import { openProgress, type Progress } from "../output/progress.ts";
import { openBuildView } from "./build-view.ts";
import { nameOf, type PlanFlags, type Planned, planOf, registryPassword, secretsOf } from "./plan.ts";

type Options = AccessOptions &
  PlanFlags & {
    cpu?: number;
    memory?: number;
    disk?: number;
    cache: boolean;
    strictFiles?: true;
    registryUser?: string;
    secret?: string[];
    detach?: true;
    quiet?: true;
    output?: OutputFormat;
  };

const EXIT_INTERRUPTED = 130;

export async function buildTemplate(context: string | undefined, options: Options): Promise<number> {
  const { url, cpu, memory, disk, cache, strictFiles, registryUser, secret, detach, quiet, output } = options;
  // Local errors are reported before any request is sent to the server.
  const plan = planOf(context, options);
  const name = nameOf(options.name, context);
  const secrets = secretsOf(secret ?? []);
  const registry = registryUser === undefined ? undefined : { type: "registry" as const, username: registryUser, password: await registryPassword() };
  if (quiet !== true) for (const note of plan.notes) remark(`Dockerfile: ${note}`);
  return withClient(url === undefined ? {} : { url }, async (client) => {
    const files = plan.steps.some(({ type, from }) => type === "COPY" && from === undefined) ? await openContext(resolve(context ?? ".")) : undefined;
    const template = await client.templates.request({
      name,
      ...(cpu === undefined ? {} : { cpuCount: cpu }),
      ...(memory === undefined ? {} : { memoryMB: memory }),
      ...(disk === undefined ? {} : { minFreeDiskMb: disk }),
      ...(cache ? {} : { skipCache: true }),
    });
    const { templateID, buildID } = template;
    try {
      const steps = files === undefined ? [...plan.steps] : await sendFiles(client, templateID, plan, files, quiet === true);
      await client.templates.start({
        templateID,
        buildID,
        ...plan.base,
        steps: steps.map(({ secrets: seen, ...step }) => ({ ...step, ...(seen === undefined ? {} : { secrets: seen.map((each) => ({ ...each })) }) })),
        ...(Object.keys(secrets).length === 0 ? {} : { secrets }),
        ...(plan.dockerfile ? { dockerfile: true } : {}),
        ...(plan.startCmd === undefined ? {} : { startCmd: plan.startCmd }),
        ...(plan.readyCmd === undefined ? {} : { readyCmd: plan.readyCmd }),
        ...(registry === undefined ? {} : { fromImageRegistry: registry }),
        ...(strictFiles === true ? { strictFiles: true } : {}),
        ...(cache ? {} : { force: true }),
      });
    } catch (error) {
      // The build was refused or interrupted before it began, so the template without a build is cancelled.
      await client.templates.cancel({ templateID, buildID }).catch(() => undefined);
      throw error;
    }
    if (detach !== true) await watch(client, template, name, quiet === true);
    show(template, detach === true ? "building" : "ready", quiet === true, output);
    return 0;
  });
}

/** Shows a progress bar for each archive that is uploaded, and a line for each that the server already has. */
async function sendFiles(client: SvcClient, templateID: string, plan: Planned, files: BuildContext, quiet: boolean) {
  let progress: Progress | undefined;
  let sent = 0;
  const onBytes = (source: string, sentBytes: number, totalBytes: number) => {
    progress ??= openProgress(`COPY ${source}`, totalBytes, 1, quiet);
    progress.add(sentBytes - sent);
    sent = sentBytes;
  };
  const onUpload = (source: string, sizeBytes: number | "present") => {
    if (sizeBytes === "present" && !quiet) remark(`COPY ${source}: known to the server`);
    progress?.close(true);
    progress = undefined;
    sent = 0;
  };
  try {
    return await uploadFiles(plan.steps, files, (hash) => client.templates.files(templateID, hash), onUpload, onBytes);
  } finally {
    progress?.close(false);
  }
}

/** Shows the build until it ends. @throws ForeseenError with the reason when it fails. */
async function watch(client: SvcClient, build: BuildName, name: string, quiet: boolean): Promise<void> {
  const view = openBuildView(quiet);
  const onInterrupt = () => {
    view.close(false);
    // A second Ctrl-C exits without waiting for the cancellation.
    process.once("SIGINT", () => process.exit(EXIT_INTERRUPTED));
    const said = client.templates.cancel(build).then(
      () => `svc: the build was canceled; with -d it continues in the background`,
      (error: unknown) => `svc: the build could not be canceled: ${(error as Error).message}`,
    );
    void said.then((message) => {
      remark(message);
      process.exit(EXIT_INTERRUPTED);
    });
  };
  process.once("SIGINT", onInterrupt);
  try {
    const entries = client.templates.follow(build);
    for (;;) {
      const next = await entries.next();
      if (next.done !== true) {
        view.add(next.value);
        continue;
      }
      const end = next.value;
      view.close(end?.status === "ready");
      if (end?.status === "error") throw new ForeseenError(`template ${name} was not built: ${end.reason?.message ?? "its log says why"}`);
      return;
    }
  } catch (error) {
    view.close(false);
    throw error;
  } finally {
    process.off("SIGINT", onInterrupt);
  }
}

function show({ templateID, buildID, names, tags }: RequestedTemplate, status: string, quiet: boolean, output: OutputFormat | undefined): void {
  if (quiet) process.stdout.write(`${templateID}\n`);
  else if (outputFormat(output) === "json") printJSON({ templateID, buildID, names, tags, status });
  else printTable(["TEMPLATE ID", "NAMES", "TAGS", "BUILD ID", "STATUS"], [[templateID, names.join(", "), tags.join(", "), buildID, status]]);
}
