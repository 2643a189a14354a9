// The queries about a template's tags that E2B's clients make: how many, whether one exists, and which builds each tag named.
import { z } from "zod";
import { limits } from "./fields.ts";
import { operation } from "./operation.ts";

const templateID = z.string().min(1).max(limits.nameLength);
const tag = z.string().min(1).max(limits.nameLength);
const cursor = z.string().max(512).optional();

export const MAX_TAGS_LISTED = 100;
export const MAX_ASSIGNMENTS_LISTED = 100;

const onTags = ["INVALID_REQUEST", "UNAUTHENTICATED", "TEMPLATE_NOT_FOUND"] as const;

/** One assignment of a tag to a ready build; a tag that moved has several. */
export const tagAssignment = z.object({
  assignmentId: z.uuid(),
  buildId: z.string(),
  assignedAt: z.string().describe("RFC 3339"),
  buildCreatedAt: z.string(),
  buildFinishedAt: z.string().nullable(),
});
export type TagAssignment = z.output<typeof tagAssignment>;

export const countTags = operation({
  name: "countTags",
  method: "GET",
  path: "/templates/{templateID}/tags/count",
  summary: "The number of tags of a template that name a ready build",
  input: z.object({ templateID }),
  output: z.object({ total: z.number().int() }),
  success: 200,
  credential: "apiKey",
  failures: ["UNAUTHENTICATED", "TEMPLATE_NOT_FOUND"],
});

export const tagExists = operation({
  name: "tagExists",
  method: "GET",
  path: "/templates/{templateID}/tags/exists",
  summary: "Whether a tag of a template names a ready build",
  input: z.object({ templateID, tag }),
  output: z.object({ exists: z.boolean(), normalizedTag: z.string() }),
  success: 200,
  credential: "apiKey",
  failures: onTags,
});

export const tagSorts = ["latest_asc", "latest_desc", "name_asc", "name_desc"] as const;

export const listTagGroups = operation({
  name: "listTagGroups",
  method: "GET",
  path: "/templates/{templateID}/tags/groups",
  summary: "The tags of a template, each with the builds that it named last, page by page",
  input: z.object({
    templateID,
    assignmentLimit: z.coerce.number().int().min(1).max(MAX_ASSIGNMENTS_LISTED).default(6),
    tagsLimit: z.coerce.number().int().min(1).max(MAX_TAGS_LISTED).default(25),
    tagsCursor: cursor.describe("nextCursor of the page before"),
    search: z.string().max(limits.nameLength).optional().describe("A part of the tag, in either case"),
    sort: z.enum(tagSorts).default("latest_desc"),
  }),
  output: z.object({
    tags: z.array(z.object({ tag: z.string(), assignments: z.array(tagAssignment), hasMore: z.boolean() })),
    nextCursor: z.string().nullable(),
  }),
  success: 200,
  credential: "apiKey",
  failures: onTags,
});

export const listTagAssignments = operation({
  name: "listTagAssignments",
  method: "GET",
  path: "/templates/{templateID}/tags/{tag}/assignments",
  summary: "The ready builds that a tag named, newest first, page by page",
  input: z.object({ templateID, tag, cursor, limit: z.coerce.number().int().min(1).max(MAX_ASSIGNMENTS_LISTED).default(50) }),
  output: z.object({ data: z.array(tagAssignment), nextCursor: z.string().nullable() }),
  success: 200,
  credential: "apiKey",
  failures: onTags,
});

export const templateTagOperations = { countTags, tagExists, listTagGroups, listTagAssignments } as const;
