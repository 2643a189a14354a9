// Checks that a member still belongs to its cluster, with one request for all watches that read from it.
import type { Endpoints } from "./endpoints.ts";
import { encode, rangeAnswer } from "./wire.ts";

export type Checked = {
  readonly prefix: string;
  /** The revision of the last change that this watch has seen; undefined before the first one. */
  readonly revision: () => bigint | undefined;
  /** Called if the member's revision is older than ours: its store was recreated or restored. */
  readonly onHistoryLost: () => void;
  /** Called if the member does not answer, or answers that it has lost its cluster. */
  readonly onBroken: (error: unknown) => void;
};

export interface Checks {
  /** Includes the watch in the checks of this member until the returned function is called. */
  join(url: string, watch: Checked): () => void;
}

type Member = { readonly watches: Set<Checked>; readonly timer: NodeJS.Timeout; isAsked: boolean };

/** A member that is cut off from the cluster keeps its streams open and silent; only a linearizable read reveals it. */
export function openChecks(endpoints: Pick<Endpoints, "callOne">, checkMs: number): Checks {
  const members = new Map<string, Member>();

  async function check(url: string, member: Member): Promise<void> {
    const [first] = member.watches;
    if (first === undefined || member.isAsked) return;
    member.isAsked = true;
    // A watch may learn of newer changes while the request is in flight, so we compare with what it knew before.
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
