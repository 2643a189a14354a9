// The public API for templates, from which sandboxes start: list, tag, delete; builds are in template-build.ts.
import { z } from "zod";
import { limits } from "./fields.ts";
import { operation } from "./operation.ts";
import { buildStatus, buildTemplate, cancelBuild, getBuildLogs, getBuildStatus, getTemplateFiles, requestTemplate } from "./template-build.ts";
import { templateTagOperations } from "./template-tags.ts";

const reference = z.string().min(1).max(limits.nameLength);

/** A deployment has no users: `id` is derived from the API key that requested the template. */
const createdBy = z.object({ id: z.uuid(), email: z.string().nullable() });

export const listedTemplate = z.object({
  templateID: z.string(),
  buildID: z.string(),
  cpuCount: z.number().int(),
  memoryMB: z.number().int(),
  diskSizeMB: z.number().int(),
  public: z.boolean(),
  aliases: z.array(z.string()),
  names: z.array(z.string()),
  createdAt: z.string(),
  updatedAt: z.string(),
  createdBy: createdBy.nullable().describe("null: made by set-up, or before this was recorded"),
  lastSpawnedAt: z.string().nullable(),
  spawnCount: z.number().int(),
  buildCount: z.number().int(),
  envdVersion: z.string(),
  buildStatus,
});
export type ListedTemplate = z.output<typeof listedTemplate>;

/** The first SDKs with `Template.build` (2.1 to 2.5, JavaScript and Python) call this operation and expect the whole template in its answer. */
export const requestTemplateV2 = operation({
  ...requestTemplate,
  name: "requestTemplateV2",
  path: "/v2/templates",
  summary: "The same, for older clients",
  output: requestTemplate.output.extend(listedTemplate.shape),
});

export const listTemplates = operation({
  name: "listTemplates",
  method: "GET",
  path: "/templates",
  summary: "Lists the templates; snapshots have a list of their own",
  input: z.object({ teamID: z.string().optional() }),
  output: z.array(listedTemplate),
  success: 200,
  credential: "apiKey",
  failures: ["UNAUTHENTICATED"],
});

export const listTemplatesV2 = operation({
  ...listTemplates,
  name: "listTemplatesV2",
  path: "/v2/templates",
  summary: "Lists the templates page by page; the header x-next-token names the next page",
  input: z.object({
    limit: z.coerce.number().int().min(1).max(limits.listPage).default(limits.listPage),
    nextToken: z.string().max(512).optional(),
  }),
});

export const templateBuild = z.object({
  buildID: z.string(),
  status: buildStatus,
  createdAt: z.string(),
  updatedAt: z.string(),
  finishedAt: z.string().nullish(),
  cpuCount: z.number().int(),
  memoryMB: z.number().int(),
  diskSizeMB: z.number().int().nullish(),
  envdVersion: z.string().nullish(),
});

export const getTemplate = operation({
  name: "getTemplate",
  method: "GET",
  path: "/templates/{templateID}",
  summary: "One template with its builds, by id or name",
  input: z.object({ templateID: reference }),
  output: listedTemplate.extend({ builds: z.array(templateBuild) }),
  success: 200,
  credential: "apiKey",
  failures: ["UNAUTHENTICATED", "TEMPLATE_NOT_FOUND"],
});

export const getTemplateByAlias = operation({
  name: "getTemplateByAlias",
  method: "GET",
  path: "/templates/aliases/{alias}",
  summary: "Whether a name is taken; 404 says that it is free",
  input: z.object({ alias: reference }),
  output: z.object({ templateID: z.string(), public: z.boolean() }),
  success: 200,
  credential: "apiKey",
  failures: ["UNAUTHENTICATED", "TEMPLATE_NOT_FOUND"],
});

export const updateTemplate = operation({
  name: "updateTemplate",
  method: "PATCH",
  path: "/v2/templates/{templateID}",
  summary: "Makes a template public or private; keys of tenants start sandboxes from public ones alone",
  input: z.object({ templateID: reference, public: z.boolean() }),
  output: z.object({ names: z.array(z.string()) }),
  success: 200,
  credential: "apiKey",
  failures: ["INVALID_REQUEST", "UNAUTHENTICATED", "TEMPLATE_NOT_FOUND", "DISK_FULL"],
});

/** The first version of this update, which E2B's SDKs still have; it answers with nothing. */
export const updateTemplateV1 = operation({
  ...updateTemplate,
  name: "updateTemplateV1",
  path: "/templates/{templateID}",
  summary: "The same, for older clients; answers without a body",
  input: z.object({ templateID: reference, public: z.boolean().optional() }),
  output: z.undefined(),
});

export const listDefaultTemplates = operation({
  name: "listDefaultTemplates",
  method: "GET",
  path: "/default-templates",
  summary: "Lists the templates that set-up made, by id",
  input: z.object({}),
  output: z.array(listedTemplate),
  success: 200,
  credential: "apiKey",
  failures: ["UNAUTHENTICATED"],
});

export const deleteTemplate = operation({
  name: "deleteTemplate",
  method: "DELETE",
  path: "/templates/{templateID}",
  summary: "Deletes a template or a snapshot, by id or name; running sandboxes of it go on",
  input: z.object({ templateID: reference }),
  output: z.undefined(),
  success: 204,
  credential: "apiKey",
  failures: ["UNAUTHENTICATED", "TEMPLATE_NOT_FOUND", "TEMPLATE_IN_USE", "DISK_FULL"],
});

const tag = z
  .string()
  .min(1)
  .max(limits.nameLength)
  .regex(/^[A-Za-z0-9][A-Za-z0-9_.-]*$/, "a tag is letters, digits, '-', '_' and '.'");

export const assignTags = operation({
  name: "assignTags",
  method: "POST",
  path: "/templates/tags",
  summary: "Gives the build that `name:tag` names further tags; a tag moves from the build that bore it",
  input: z.object({ target: reference, tags: z.array(tag).min(1).max(64) }),
  output: z.object({ buildID: z.string(), tags: z.array(z.string()) }),
  success: 201,
  credential: "apiKey",
  failures: ["INVALID_REQUEST", "UNAUTHENTICATED", "TEMPLATE_NOT_FOUND", "DISK_FULL", "OBJECTS_UNAVAILABLE"],
});

export const removeTags = operation({
  name: "removeTags",
  method: "DELETE",
  path: "/templates/tags",
  summary: "Takes tags away from a template's builds",
  input: z.object({ name: reference, tags: z.array(tag).min(1).max(64) }),
  output: z.undefined(),
  success: 204,
  credential: "apiKey",
  failures: ["INVALID_REQUEST", "UNAUTHENTICATED", "TEMPLATE_NOT_FOUND", "TAG_NOT_FOUND", "DISK_FULL", "OBJECTS_UNAVAILABLE"],
});

export const listTags = operation({
  name: "listTags",
  method: "GET",
  path: "/templates/{templateID}/tags",
  summary: "The tags of a template and the build each names",
  input: z.object({ templateID: reference }),
  output: z.array(z.object({ tag: z.string(), buildID: z.string(), createdAt: z.string() })),
  success: 200,
  credential: "apiKey",
  failures: ["UNAUTHENTICATED", "TEMPLATE_NOT_FOUND"],
});

export const templateOperations = {
  listTemplates,
  listTemplatesV2,
  requestTemplate,
  requestTemplateV2,
  getTemplateFiles,
  buildTemplate,
  cancelBuild,
  getBuildStatus,
  getBuildLogs,
  getTemplate,
  getTemplateByAlias,
  updateTemplate,
  updateTemplateV1,
  listDefaultTemplates,
  deleteTemplate,
  assignTags,
  removeTags,
  listTags,
  ...templateTagOperations,
} as const;
