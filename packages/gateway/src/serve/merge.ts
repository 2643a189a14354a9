// Asks all nodes for a list and merges their answers; a missing node is named in a header and in the log.
import { type Answer, callForAnswer } from "@svc/contract/call.ts";
import { MISSING_NODES_HEADER } from "@svc/contract/cluster.ts";
import { Failure, fail } from "@svc/contract/failures.ts";
import { comparePositions, type Position, positionToken } from "@svc/contract/list-position.ts";
import type { Input, Operation, Output, Parsed } from "@svc/contract/operation.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Context } from "@svc/kit/serve.ts";
import type { Member } from "../members/member.ts";
import type { Members } from "../members/members.ts";
import { actingHeaders } from "./relay.ts";

/** The bound for one node's page. */
const TIMEOUT_MS = 5_000;

export type MergeParts = { readonly members: Members; readonly apiKey: string; readonly log: Log };

export type Merge = {
  /** Returns each node's answer. @throws the failure with which a node rejects the request, SERVER_UNREACHABLE if none answers. */
  ask<T extends Operation>(
    operation: T,
    inputOf: (member: Member) => Parsed<T> | undefined,
    context: Context,
    alsoMissing?: readonly string[],
  ): Promise<Output<T>[]>;
  /** The same with the headers of each answer. */
  answers<T extends Operation>(operation: T, inputOf: (member: Member) => Parsed<T> | undefined, context: Context): Promise<Answer<T>[]>;
  /** Returns a page of all nodes' items and of `extra`, in the order of `positionOf`; each item appears once, as a node shows it if one has it. */
  page<I>(operation: Operation, input: { readonly limit: number }, context: Context, order: Order<I>, extra: Extra<I>): Promise<I[]>;
};

export type Order<I> = {
  readonly positionOf: (item: I) => Position;
  readonly direction: 1 | -1;
  readonly token: "position" | "id";
  /** Returns true for a copy: the origin node's item is listed instead if that node answers. */
  readonly isCopy?: (item: I) => boolean;
  /** Returns true for an item that is not listed, because its origin node no longer has it. */
  readonly isOver?: (item: I) => boolean;
  /** Merges two nodes' items with the same id. */
  readonly merged?: (known: I, item: I) => I;
  readonly shown?: (item: I) => I;
};

/**
 * Items that no node that answers has, and where the page begins (`after`). `missing` names nodes to report in addition to those that do not answer.
 */
export type Extra<I> = { readonly items: readonly I[]; readonly missing: readonly string[]; readonly after: Position | undefined };

export function openMerge({ members, apiKey, log }: MergeParts): Merge {
  async function askAll<T extends Operation>(
    operation: T,
    inputOf: (member: Member) => Parsed<T> | undefined,
    context: Context,
    alsoMissing: readonly string[] = [],
  ): Promise<Answer<T>[]> {
    const missing = alsoMissing.map((name) => ({ name, reason: "its sandboxes in object storage could not be read" }));
    const asked = members.all.flatMap((member) => {
      const input = inputOf(member);
      return input === undefined ? [] : [{ member, input }];
    });

    async function askOne(member: Member, input: Parsed<T>): Promise<Answer<T>[]> {
      if (!member.isUp) {
        missing.push({ name: member.name, reason: member.reason });
        return [];
      }
      const signal = AbortSignal.any([context.signal, member.signal]);
      try {
        return [
          await callForAnswer(operation, input as Input<T>, {
            baseURL: member.url,
            apiKey,
            send: member.peers.send,
            headers: { ...actingHeaders(operation, context), ...context.trace },
            signal,
            timeoutMs: TIMEOUT_MS,
          }),
        ];
      } catch (error) {
        if (error instanceof Failure && error.row.http < 500 && error.name !== "TOO_MANY_REQUESTS") throw error;
        missing.push({ name: member.name, reason: member.isUp ? (error as Error).message : member.reason });
        return [];
      }
    }

    const answers = (await Promise.all(asked.map(({ member, input }) => askOne(member, input)))).flat();
    if (missing.length > 0) {
      context.header(MISSING_NODES_HEADER, [...new Set(missing.map(({ name }) => name))].join(","));
      log.warn({ operation: operation.name, requestID: context.requestID, missing }, "a list is incomplete: these nodes did not answer");
    }
    if (answers.length === 0 && asked.length > 0)
      fail("SERVER_UNREACHABLE", "no node of this deployment answers; GET /nodes says why", { retryAfterSeconds: 1 });
    return answers;
  }

  return {
    answers: askAll,
    ask: async (operation, inputOf, context, alsoMissing) => (await askAll(operation, inputOf, context, alsoMissing)).map(({ value }) => value),
    async page(operation, input, context, order, { items: extra, missing, after }) {
      const { positionOf, direction, token, isCopy = () => false, isOver = () => false, merged = (_, item) => item, shown = (item) => item } = order;
      const pages = await askAll(operation as Operation, () => input as never, context, missing);
      const later = extra.filter((item) => after === undefined || direction * comparePositions(positionOf(item), after) > 0);
      const withoutNode = new Set(later);
      const all = new Map<string, Parameters<typeof positionOf>[0]>();
      for (const item of [...later, ...(pages.flatMap(({ value }) => value) as Parameters<typeof positionOf>[0][])]) {
        const [, id] = positionOf(item);
        const known = all.get(id);
        if (!isOver(item) && !(isCopy(item) && known !== undefined)) all.set(id, known === undefined || withoutNode.has(known) ? item : merged(known, item));
      }
      const sorted = [...all.values()].sort((a, b) => direction * comparePositions(positionOf(a), positionOf(b)));
      const items = sorted.slice(0, input.limit);
      const last = items.at(-1);
      const hasMore = sorted.length > items.length || pages.some(({ headers }) => headers.has("x-next-token"));
      if (hasMore && last !== undefined) context.header("x-next-token", token === "id" ? positionOf(last)[1] : positionToken(positionOf(last)));
      return items.map(shown);
    },
  };
}
