// The handlers of the template operations, one short function each.
import { asFailure, type FailureName, fail } from "@svc/contract/failures.ts";
import type { Output, Parsed } from "@svc/contract/operation.ts";
import type { templateOperations } from "@svc/contract/template.ts";
import type { Handlers } from "@svc/kit/serve.ts";
import type { Build, BuildSpec, BuiltTemplate } from "./build-record.ts";
import { checkSteps } from "./build-steps.ts";
import type { Templates } from "./open-templates.ts";
import { checkTag, DEFAULT_TAG, newReference, splitReference } from "./reference.ts";
import { MIN_DISK_SIZE_MB } from "./settings.ts";
import { listedBuilt, listedSetUp, neverStarted, shownBuild, shownStatus } from "./show.ts";
import { checkSource } from "./source.ts";
import { tagHandlers } from "./tag-routes.ts";

const refusesSpec: ReadonlySet<FailureName> = new Set(["INVALID_REQUEST", "TEMPLATE_NOT_FOUND", "QUARANTINED"]);
const REASON_ENTRIES = 20;
/** Waiting and failed builds count too; further templates are refused until some are deleted. */
const MAX_TEMPLATES = 10_000;

/**
 * `fetch` imports a template or snapshot by name and returns its id. `untilDurable` is called for a template whose tags changed. `creator` is the UUID shown
 * as `createdBy` of new templates.
 */
export function templateHandlers(
  { builder, index, queue, snapshots, deleteTemplate, envdVersion }: Templates,
  fetch: (asked: string) => Promise<string | undefined>,
  untilDurable: (templateID: string) => Promise<void>,
  maxDiskSizeMB: number,
  creator: string,
): Handlers<typeof templateOperations> {
  const { builds, buildLog, uploads } = builder;

  /** @throws TEMPLATE_NOT_FOUND. */
  function known(asked: string): BuiltTemplate {
    const found = builds.template(splitReference(asked).name);
    if (found !== undefined) return found;
    index.find(asked); // find() throws a failure that lists the alternatives if nothing has this name.
    return fail("INVALID_REQUEST", `template '${asked}' was not built here: it has neither builds nor tags of its own`);
  }

  function buildOf(asked: string, buildID: string): Build {
    const template = known(asked);
    const build = builds.build(buildID);
    return build?.templateID === template.templateID ? build : fail("BUILD_NOT_FOUND", `template '${asked}' has no build '${buildID}'`);
  }

  /** Returns the name by which a build finds it: its own, or the id under which it was fetched. @throws TEMPLATE_NOT_FOUND. */
  async function sourceHere(asked: string): Promise<string> {
    try {
      index.find(asked);
      return asked;
    } catch (error) {
      const fetched = asFailure(error).name === "TEMPLATE_NOT_FOUND" ? await fetch(asked) : undefined;
      if (fetched === undefined) throw error;
      return fetched;
    }
  }

  async function specOf(input: Parsed<typeof templateOperations.buildTemplate>): Promise<BuildSpec> {
    const asked: BuildSpec = {
      fromImage: input.fromImage ?? undefined,
      fromTemplate: input.fromTemplate ?? undefined,
      needsCredentials: input.fromImageRegistry != null || Object.keys(input.secrets ?? {}).length > 0,
      steps: input.steps ?? [],
      startCmd: input.startCmd || undefined,
      readyCmd: input.readyCmd || undefined,
      force: input.force === true,
      dockerfile: input.dockerfile === true,
      strictFiles: input.strictFiles ?? undefined,
    };
    checkSource(asked);
    checkSteps(asked.steps);
    const spec = asked.fromTemplate === undefined ? asked : { ...asked, fromTemplate: await sourceHere(asked.fromTemplate) };
    spec.steps.forEach(({ type, filesHash, from, secrets }, at) => {
      const lacking = secrets?.find(({ id, required }) => required === true && input.secrets?.[id] === undefined);
      if (lacking !== undefined) fail("INVALID_REQUEST", `step ${at + 1} (RUN): it requires the build secret '${lacking.id}', which was not given`);
      if (type === "COPY" && from == null && !uploads.has(filesHash ?? ""))
        fail("INVALID_REQUEST", `step ${at + 1} (COPY): its files are missing; first PUT them to the URL of GET /templates/{id}/files/{hash}`);
    });
    return spec;
  }

  function request(input: Parsed<typeof templateOperations.requestTemplate>): Output<typeof templateOperations.requestTemplate> {
    const asked = input.name ?? input.alias ?? fail("INVALID_REQUEST", "name: is missing");
    const reference = newReference(builds.template(asked)?.name ?? asked);
    const tags = [...new Set([...(reference.tag === undefined ? [] : [reference.tag]), ...(input.tags ?? [])])];
    for (const tag of tags) checkTag(tag);
    if (index.setUp(reference.name) !== undefined) fail("INVALID_REQUEST", `name: '${reference.name}' is a template of set-up; choose another`);
    if (snapshots.find(reference.name) !== undefined) fail("INVALID_REQUEST", `name: '${reference.name}' is the name of a snapshot; choose another`);
    if (builds.templateCount >= MAX_TEMPLATES) fail("TOO_MANY_REQUESTS", `this node holds ${MAX_TEMPLATES} templates, the maximum; delete some`);
    const sizes = {
      cpuCount: input.cpuCount ?? undefined,
      memoryMB: input.memoryMB ?? undefined,
      diskSizeMB: diskSizeOf(input.minFreeDiskMb ?? 0, maxDiskSizeMB),
    };
    const { template, build } = builds.request(reference.name, tags.length === 0 ? [DEFAULT_TAG] : tags, sizes, creator);
    const { templateID, name } = template;
    return { templateID, buildID: build.buildID, public: template.public, names: [name], tags: [...build.tags], aliases: [name] };
  }

  return {
    listTemplates: () => index.listed(),
    listTemplatesV2({ limit, nextToken }, context) {
      const all = index.listed().sort((a, b) => (a.templateID < b.templateID ? -1 : 1));
      const from = nextToken === undefined ? 0 : all.findIndex(({ templateID }) => templateID > nextToken);
      const items = from === -1 ? [] : all.slice(from, from + limit);
      const last = items.at(-1)?.templateID;
      if (last !== undefined && from + limit < all.length) context.header("x-next-token", last);
      return items;
    },
    requestTemplate: request,
    requestTemplateV2(input) {
      const requested = request(input);
      const { templateID } = requested;
      return { ...listedBuilt(known(templateID), builds.of(templateID), index.spawns(templateID), envdVersion), ...requested };
    },
    getTemplateFiles({ templateID, hash, host, protocol }) {
      known(templateID);
      // The URL uses the host and protocol that the client used.
      const origin = `${protocol === "https" ? "https" : "http"}://${host ?? "localhost"}`;
      return { present: uploads.has(hash), url: origin + uploads.address(hash) };
    },
    async buildTemplate(input) {
      const build = buildOf(input.templateID, input.buildID);
      try {
        const confidential = { registry: input.fromImageRegistry ?? undefined, secrets: input.secrets ?? {} };
        queue.start(build, await specOf(input), confidential);
      } catch (error) {
        const failure = asFailure(error);
        // Without this, lists would show the never started build as waiting forever.
        if (refusesSpec.has(failure.name)) queue.refuse(buildOf(input.templateID, input.buildID), failure);
        throw error;
      }
      return undefined;
    },
    cancelBuild({ templateID, buildID }) {
      queue.cancel(buildOf(templateID, buildID));
    },
    getBuildStatus({ templateID, buildID, logsOffset, limit, level }) {
      if (queue.wasDropped(buildID)) fail("TEMPLATE_NOT_FOUND", `template '${templateID}' was deleted while it was built`);
      const build = buildOf(templateID, buildID);
      const { reason = neverStarted(build) } = build;
      const status = shownStatus(build);
      const logEntries = buildLog.page(buildID, logsOffset, limit, level);
      return {
        templateID,
        buildID,
        status,
        logs: logEntries.map(({ message }) => message),
        logEntries,
        ...(reason === undefined
          ? {}
          : {
              reason: {
                message: reason.message,
                ...(reason.step === undefined ? {} : { step: reason.step }),
                logEntries: reason.step === undefined ? [] : buildLog.tail(buildID, reason.step, REASON_ENTRIES),
              },
            }),
      };
    },
    getBuildLogs({ templateID, buildID, cursor, limit, direction, level }) {
      buildOf(templateID, buildID);
      return { logs: buildLog.since(buildID, cursor, limit, direction, level) };
    },
    getTemplate({ templateID: asked }) {
      const own = index.setUp(asked);
      if (own !== undefined && builds.template(asked) === undefined) {
        const shown = listedSetUp(own.template, own.names, index.spawns(own.template.templateID), envdVersion);
        const { buildID, createdAt, updatedAt, cpuCount, memoryMB, diskSizeMB } = shown;
        return {
          ...shown,
          builds: [{ buildID, status: "ready" as const, createdAt, updatedAt, finishedAt: createdAt, cpuCount, memoryMB, diskSizeMB, envdVersion }],
        };
      }
      const template = known(asked);
      const all = builds.of(template.templateID);
      return { ...listedBuilt(template, all, index.spawns(template.templateID), envdVersion), builds: all.map(shownBuild) };
    },
    getTemplateByAlias({ alias }) {
      const template = builds.template(alias);
      if (template !== undefined) return { templateID: template.templateID, public: template.public };
      return { templateID: index.find(alias).templateID, public: true };
    },
    updateTemplate({ templateID, public: isPublic }) {
      const template = known(templateID);
      builds.setPublic(template.templateID, isPublic);
      return { names: [template.name] };
    },
    updateTemplateV1({ templateID, public: isPublic }) {
      const template = known(templateID);
      if (isPublic !== undefined) builds.setPublic(template.templateID, isPublic);
      return undefined;
    },
    listDefaultTemplates: () => index.listedSetUp().sort((a, b) => (a.templateID < b.templateID ? -1 : 1)),
    async deleteTemplate({ templateID }) {
      await deleteTemplate(templateID);
    },
    async assignTags({ target, tags }) {
      const found = builds.resolve(target);
      if (found === undefined) {
        known(target);
        return fail("TEMPLATE_NOT_FOUND", `'${target}' is not a build that is ready`);
      }
      builds.tag(found.template.templateID, tags, found.build.buildID);
      await untilDurable(found.template.templateID);
      return { buildID: found.build.buildID, tags };
    },
    async removeTags({ name, tags }) {
      const { templateID } = known(name);
      builds.untag(templateID, tags);
      await untilDurable(templateID);
    },
    listTags: ({ templateID }) =>
      builds.tags(known(templateID).templateID).map(({ tag, buildID, createdAtMs }) => ({ tag, buildID, createdAt: new Date(createdAtMs).toISOString() })),
    ...tagHandlers(builds, known),
  };
}

/** 0 means the size of the source. @throws INVALID_REQUEST. */
function diskSizeOf(askedMB: number, maxMB: number): number | undefined {
  if (askedMB === 0) return undefined;
  if (askedMB >= MIN_DISK_SIZE_MB && askedMB <= maxMB) return askedMB;
  return fail(
    "INVALID_REQUEST",
    `minFreeDiskMb: expected ${MIN_DISK_SIZE_MB} to ${maxMB} MiB for the disk of its sandboxes (template.max_disk_size_mb), got ${askedMB}`,
  );
}
