// A home's firewall table in the kernel: changes in batches, put back when another program removed it.
import type { Log } from "@svc/kit/log.ts";
import type { Spawner } from "@svc/kit/spawn.ts";
import { Batcher } from "./batch.ts";
import type { Kept } from "./kept.ts";
import { tableOf } from "./names.ts";
import type { NetworkSlot } from "./networks.ts";
import { tableRemovalText, UNNOTED_SET } from "./rules.ts";
import { liveSet, namesSet } from "./slot-rules.ts";
import { watchTable } from "./table-watch.ts";

const MAX_CHANGES_PER_CALL = 64;
/** How often counters are read, and how long a firewall reload by others can go unseen where it cannot be watched. */
const CHECK_MS = 5000;

export type RulesetOptions = {
  readonly token: string;
  readonly spawner: Spawner;
  readonly log: Log;
  /** The whole table as it should be now: what all slots share, and every slot in use. */
  readonly wholeText: () => string;
  /** Told at each check how many denied packets, per interface, were counted only. */
  readonly onCounted?: (counts: ReadonlyMap<string, number>) => void;
};

export class Ruleset {
  readonly #options: RulesetOptions;
  readonly #changes: Batcher<string>;
  #checking: NodeJS.Timeout | undefined;
  #watch: Kept | undefined;
  #checked: Promise<void> = Promise.resolve();

  constructor(options: RulesetOptions) {
    this.#options = options;
    this.#changes = new Batcher(MAX_CHANGES_PER_CALL, (texts) => this.#apply(texts.join("")));
  }

  async open(): Promise<void> {
    await this.#nft(this.#options.wholeText());
    const { token, log } = this.#options;
    const check = (): void => {
      this.#checked = this.#checked
        .then(() => this.#check())
        .catch((error: unknown) => log.error({ err: error }, "the firewall table of sandbox networks could not be checked"));
    };
    this.#checking = setInterval(check, CHECK_MS).unref();
    this.#watch = await watchTable({ table: tableOf(token), log, onDeleted: check }).catch((error: unknown) => {
      log.warn({ err: error, checkMs: CHECK_MS }, "a firewall table that another program deletes is not noticed at once, only when it is checked");
      return undefined;
    });
  }

  /** What all slots share is renewed, say because the log group is another; slots keep theirs. */
  renew(homeText: string): Promise<void> {
    return this.change(homeText);
  }

  /** `text` is in force, in one transaction with what others change at the moment. */
  change(text: string): Promise<void> {
    return this.#changes.add(text);
  }

  /** Addresses that a slot's names opened, by an earlier run of this node, and those that connections still use. */
  async held(slot: NetworkSlot): Promise<{ address: string; name: string | undefined; seconds: number }[]> {
    const table = tableOf(this.#options.token);
    const sets = [namesSet(slot), liveSet(slot)].map((set) =>
      this.#options.spawner.run(["nft", "-j", "list", "set", "inet", table, set], { repeatable: true }),
    );
    const [named = [], live = []] = (await Promise.all(sets)).map(({ code, stdout }) => (code === 0 ? elementsOf(stdout) : []));
    const found = new Map([...live, ...named].map((element) => [element.val, element]));
    return [...found.values()].map(({ val, comment, expires = 0 }) => ({ address: val, name: comment, seconds: expires }));
  }

  /** Indices of the slots that have rules. */
  async slotIndices(): Promise<number[]> {
    const listing = await this.#options.spawner.check(["nft", "-t", "list", "table", "inet", tableOf(this.#options.token)], { repeatable: true });
    return [...listing.matchAll(/chain slot_(\d+) /g)].map(([, index]) => Number(index));
  }

  async close(): Promise<void> {
    clearInterval(this.#checking);
    this.#watch?.close();
    await this.#checked;
    await this.#changes.idle();
  }

  remove(): Promise<void> {
    return this.#nft(tableRemovalText(this.#options.token));
  }

  /** One look says both: whether the table is there, and what it counted. */
  async #check(): Promise<void> {
    const { token, spawner, onCounted } = this.#options;
    const { code, stdout } = await spawner.run(["nft", "-j", "list", "set", "inet", tableOf(token), UNNOTED_SET], { repeatable: true });
    if (code !== 0) return this.change(`list chain inet ${tableOf(token)} refuse\n`);
    onCounted?.(new Map(elementsOf(stdout).map(({ val, counter }) => [val, counter?.packets ?? 0])));
  }

  /** A firewall reload by others (`nft flush ruleset`) takes every table along: ours comes back with all its slots. */
  async #apply(text: string): Promise<void> {
    try {
      await this.#nft(text);
    } catch (error) {
      const table = tableOf(this.#options.token);
      const { code } = await this.#options.spawner.run(["nft", "list", "chain", "inet", table, "refuse"], { repeatable: true });
      if (code === 0) throw error;
      this.#options.log.error({ table }, "another program removed the firewall table of sandbox networks; restoring it");
      await this.#nft(this.#options.wholeText());
      await this.#nft(text);
    }
  }

  /** Every text of ours puts the table into a state, whatever it was in before: it may be loaded twice. */
  async #nft(text: string): Promise<void> {
    await this.#options.spawner.check(["nft", "-f", "-"], { input: text, repeatable: true });
  }
}

type Element = { val: string; expires?: number; comment?: string; counter?: { packets: number } };

/** The elements of a set as nft prints it in JSON; a bare value where an element has nothing else to say. */
function elementsOf(listing: string): Element[] {
  const { nftables } = JSON.parse(listing) as { nftables: { set?: { elem?: (string | { elem: Element })[] } }[] };
  return nftables.flatMap(({ set }) => (set?.elem ?? []).map((entry) => (typeof entry === "string" ? { val: entry } : entry.elem)));
}
