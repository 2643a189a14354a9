// Keeps what every node has to have the same on all of them: a node that came up, or lacks a change, is given what it lacks.
import { MISSING_NODES_HEADER } from "@svc/contract/cluster.ts";
import { fail } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Context } from "@svc/kit/serve.ts";
import type { Member } from "../members/member.ts";
import type { Members } from "../members/members.ts";

/** Nodes that came up since are given what they lack at this interval. */
const SETTLE_MS = 2_000;
/** The number of intervals after which a change that was made at a node itself is noticed. */
const SETTLES_ALL_EVERY = 15;
/** A round gives the other nodes what a node brought in the round before. */
const ROUNDS = 3;

export type SettlingParts = {
  readonly members: Pick<Members, "all" | "up">;
  /** Names what is settled in the log, in the plural. */
  readonly what: string;
  readonly canSettle: (member: Member) => boolean;
  /** Exchanges later records with a node; returns true if the node brought some. @throws if it does not answer. */
  readonly settle: (member: Member) => Promise<boolean>;
  readonly log: Log;
};

export interface Settling {
  /** Every node has to be settled again. */
  changed(): void;
  /** Settles the nodes that are up and lack something; returns at once if none does. */
  once(): Promise<void>;
  /** Settles, and names the nodes that could not be in a header. @throws SERVER_UNREACHABLE if no node answers, so that an empty list is never a mistake. */
  fresh(context?: Context): Promise<void>;
  /** Nodes that are up and have everything. */
  settled(): Member[];
  close(): void;
}

export function openSettling({ members, what, canSettle, settle, log }: SettlingParts): Settling {
  /** Nodes that have everything, by the start at which they said so. */
  const done = new Map<Member, number>();
  const isDone = (member: Member) => member.isUp && done.get(member) === member.life;
  /** Counts changes: a node that was being settled during one may lack it. */
  let changes = 0;
  let running: Promise<void> | undefined;

  function changed(): void {
    changes++;
    done.clear();
  }

  async function round(): Promise<void> {
    for (let at = 0; at < ROUNDS; at++) {
      const lacking = members.up.filter((member) => canSettle(member) && !isDone(member));
      if (lacking.length === 0) return;
      await Promise.all(
        lacking.map(async (member) => {
          const { life } = member;
          const before = changes;
          try {
            const brought = await settle(member);
            const isCurrent = changes === before;
            // The other nodes lack what this one brought.
            if (brought) changed();
            if (isCurrent) done.set(member, life);
          } catch (error) {
            log.debug({ err: error, node: member.name }, `${what} could not be given to a node; retrying`);
          }
        }),
      );
    }
  }
  const once = () => (running ??= round().finally(() => (running = undefined)));

  let ticks = 0;
  const ticking = setInterval(() => {
    if (++ticks % SETTLES_ALL_EVERY === 0) changed();
    void once();
  }, SETTLE_MS).unref();

  return {
    changed,
    once,
    settled: () => members.up.filter(isDone),
    async fresh(context) {
      // A round that began before the last change may have passed a node already.
      await running;
      await once();
      const without = members.all.filter((member) => !isDone(member));
      if (without.length === members.all.length)
        fail("SERVER_UNREACHABLE", "no node of this deployment answers; GET /nodes says why", { retryAfterSeconds: 1 });
      if (without.length > 0) context?.header(MISSING_NODES_HEADER, without.map(({ name }) => name).join(","));
    },
    close: () => clearInterval(ticking),
  };
}
