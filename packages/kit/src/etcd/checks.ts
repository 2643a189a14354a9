// Whether a member still answers with the cluster's leave: asked once for all watches that read from it.
import type { Endpoints } from "./endpoints.ts";
import { encode, rangeAnswer } from "./wire.ts";

export type Checked = {
  readonly prefix: string;
  /** Of the last change that this watch knows; undefined while it knows none. */
  readonly revision: () => bigint | undefined;
  /** The member's store is younger than what this watch knows: it was set up anew or restored. */
  readonly onHistoryLost: () => void;
  /** The member does not answer, or not as part of the cluster. */
  readonly onBroken: (error: unknown) => void;
};

export interface Checks {
  /** Until the returned function is called. */
  join(url: string, watch: Checked): () => void;
}

type Member = { readonly watches: Set<Checked>; readonly timer: NodeJS.Timeout; isAsked: boolean };

/** One that was cut off from the cluster keeps its streams, and is silent: only a linearizable read shows it. */
export function openChecks(endpoints: Pick<Endpoints, "callOne">, checkMs: number): Checks {
  const members = new Map<string, Member>();

  async function check(url: string, member: Member): Promise<void> {
    const [first] = member.watches;
    if (first === undefined || member.isAsked) return;
    member.isAsked = true;
    // What a watch learns while the answer is on its way may be newer than the answer.
    const asked = [...member.watches].map((watch) => ({ watch, known: watch.revision() }));
    const stillReading = () => asked.filter(({ watch }) => member.watches.has(watch));
    try {
      const { header: at } = await endpoints.callOne(url, "/v3/kv/range", { key: encode(first.prefix), limit: 1, keys_only: true }, rangeAnswer);
      for (const { watch, known } of stillReading()) if (known !== undefined && at !== undefined && at.revision < known) watch.onHistoryLost();
    } catch (error) {
      for (const { watch } of stillReading()) watch.onBroken(error);
    } finally {
      member.isAsked = false;
    }
  }

  return {
    join(url, watch) {
      let member = members.get(url);
      if (member === undefined) {
        const opened: Member = { watches: new Set(), timer: setInterval(() => void check(url, opened), checkMs), isAsked: false };
        members.set(url, opened);
        member = opened;
      }
      const joined = member;
      joined.watches.add(watch);
      return () => {
        joined.watches.delete(watch);
        if (joined.watches.size > 0) return;
        clearInterval(joined.timer);
        if (members.get(url) === joined) members.delete(url);
      };
    },
  };
}
