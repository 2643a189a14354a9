// The handlers of the queries about a template's tags.
import { fail } from "@svc/contract/failures.ts";
import type { TagAssignment, templateTagOperations } from "@svc/contract/template-tags.ts";
import type { Handlers } from "@svc/kit/serve.ts";
import type { BuiltTemplate, Tag } from "./build-record.ts";
import type { Builds } from "./builds.ts";
import type { Assignment } from "./tag-history.ts";

const iso = (ms: number) => new Date(ms).toISOString();

/** `known` finds a template that was built here. @throws TEMPLATE_NOT_FOUND. */
export function tagHandlers(builds: Builds, known: (asked: string) => BuiltTemplate): Handlers<typeof templateTagOperations> {
  const readyTags = (templateID: string): Tag[] => builds.tags(templateID).filter(({ buildID }) => builds.build(buildID)?.status === "ready");

  function shown({ assignmentID, buildID, assignedAtMs }: Assignment): TagAssignment[] {
    const build = builds.build(buildID);
    if (build?.status !== "ready") return [];
    return [
      {
        assignmentId: assignmentID,
        buildId: buildID,
        assignedAt: iso(assignedAtMs),
        buildCreatedAt: iso(build.createdAtMs),
        buildFinishedAt: build.finishedAtMs === undefined ? null : iso(build.finishedAtMs),
      },
    ];
  }

  /** Returns a page, and the position of its last assignment if there are more. */
  function page(templateID: string, tag: string, limit: number, before?: number): { data: TagAssignment[]; next: number | undefined } {
    const found = builds.history.of(templateID, tag, limit + 1, before);
    const taken = found.slice(0, limit);
    return { data: taken.flatMap(shown), next: found.length > limit ? taken.at(-1)?.seq : undefined };
  }

  return {
    countTags: ({ templateID }) => ({ total: readyTags(known(templateID).templateID).length }),
    tagExists: ({ templateID, tag }) => ({ exists: readyTags(known(templateID).templateID).some((each) => each.tag === tag), normalizedTag: tag }),
    listTagGroups({ templateID: asked, assignmentLimit, tagsLimit, tagsCursor, search = "", sort }) {
      const { templateID } = known(asked);
      const words = search.toLowerCase();
      const ordered = readyTags(templateID)
        .filter(({ tag }) => tag.toLowerCase().includes(words))
        .sort(orders[sort]);
      const after = tagsCursor === undefined ? undefined : tagOf(tagsCursor);
      // The cursor holds the tag's position in the order, so that the next page is right even if that tag is gone.
      const from = after === undefined ? 0 : ordered.findIndex((each) => orders[sort](after, each) < 0);
      const taken = from === -1 ? [] : ordered.slice(from, from + tagsLimit);
      const last = taken.at(-1);
      return {
        tags: taken.map(({ tag }) => {
          const { data, next } = page(templateID, tag, assignmentLimit);
          return { tag, assignments: data, hasMore: next !== undefined };
        }),
        nextCursor: last === undefined || from + taken.length >= ordered.length ? null : cursorOf(last),
      };
    },
    listTagAssignments({ templateID, tag, cursor, limit }) {
      const before = cursor === undefined ? undefined : positionOf(cursor);
      const { data, next } = page(known(templateID).templateID, tag, limit, before);
      return { data, nextCursor: next === undefined ? null : String(next) };
    },
  };
}

const byName = (a: Tag, b: Tag) => (a.tag < b.tag ? -1 : a.tag > b.tag ? 1 : 0);
const byTime = (a: Tag, b: Tag) => a.createdAtMs - b.createdAtMs || byName(a, b);
const orders = {
  latest_asc: byTime,
  latest_desc: (a: Tag, b: Tag) => byTime(b, a),
  name_asc: byName,
  name_desc: (a: Tag, b: Tag) => byName(b, a),
} as const;

const cursorOf = ({ tag, createdAtMs }: Tag) => `${createdAtMs}.${tag}`;

function tagOf(cursor: string): Tag {
  const [, at = "", tag = ""] = /^(\d{1,16})\.(.+)$/.exec(cursor) ?? fail("INVALID_REQUEST", `tagsCursor: expected the nextCursor of a page, got '${cursor}'`);
  return { tag, buildID: "", createdAtMs: Number(at) };
}

function positionOf(cursor: string): number {
  return /^\d{1,15}$/.test(cursor) ? Number(cursor) : fail("INVALID_REQUEST", `cursor: expected the nextCursor of a page, got '${cursor}'`);
}
