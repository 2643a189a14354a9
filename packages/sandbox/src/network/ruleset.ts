// A home's firewall table in the kernel: changes are batched, and the table is restored when another program removed it.
import type { Log } from "@svc/kit/log.ts";
import type { Spawner } from "@svc/kit/spawn.ts";
import { Batcher } from "./batch.ts";
import type { Kept } from "./kept.ts";
import { tableOf } from "./names.ts";
import type { NetworkSlot } from "./networks.ts";
import { ruledSet } from "./ruled.ts";
import { tableRemovalText, UNNOTED_SET } from "./rules.ts";
import { liveSet, namesSet } from "./slot-rules.ts";
import { watchTable } from "./table-watch.ts";

const MAX_CHANGES_PER_CALL = 64;
/** The interval at which counters are read, and at which a firewall reload is detected where it cannot be watched. */
const CHECK_MS = 5000;

export type RulesetOptions = {
  readonly token: string;
  readonly spawner: Spawner;
  readonly log: Log;
  /** Returns the whole table as it should be now: the shared part and every slot in use. */
  readonly wholeText: () => string;
  /** Receives at each check the number of denied packets, per interface, that were only counted. */
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

  /** Renews the part that all slots share, for example for another log group; slots keep their own part. */
  renew(homeText: string): Promise<void> {
    return this.change(homeText);
  }

  /** Resolves when `text` is in force; concurrent changes share one transaction. */
  change(text: string): Promise<void> {
    return this.#changes.add(text);
  }

  /** Returns the addresses that a slot's names opened in an earlier run of this node, and those that connections still use. */
  async openAddresses(slot: NetworkSlot): Promise<{ address: string; name: string | undefined; seconds: number }[]> {
    const table = tableOf(this.#options.token);
    const sets = [namesSet(slot), liveSet(slot)].map((set) =>
      this.#options.spawner.run(["nft", "-j", "list", "set", "inet", table, set], { repeatable: true }),
    );
    const [named = [], live = []] = (await Promise.all(sets)).map(({ code, stdout }) => (code === 0 ? elementsOf(stdout) : []));
    const found = new Map([...live, ...named].map((element) => [element.val, element]));
    return [...found.values()].map(({ val, comment, expires = 0 }) => ({ address: val, name: comment, seconds: expires }));
  }

  /** Returns the addresses whose HTTPS connections an earlier run of this node redirected. */
  async redirected(slot: NetworkSlot): Promise<string[]> {
    const listing = ["nft", "-j", "list", "set", "inet", tableOf(this.#options.token), ruledSet(slot)];
    const { code, stdout } = await this.#options.spawner.run(listing, { repeatable: true });
    return code === 0 ? elementsOf(stdout).map(({ val }) => val) : [];
  }

  /** Returns the indices of the slots that have rules. */
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

  /** One listing shows both whether the table exists and what it counted. */
  async #check(): Promise<void> {
    const { token, spawner, onCounted } = this.#options;
    const { code, stdout } = await spawner.run(["nft", "-j", "list", "set", "inet", tableOf(token), UNNOTED_SET], { repeatable: true });
    if (code !== 0) return this.change(`list chain inet ${tableOf(token)} refuse\n`);
    onCounted?.(new Map(elementsOf(stdout).map(({ val, counter }) => [val, counter?.packets ?? 0])));
  }

  /** A firewall reload by another program (`nft flush ruleset`) removes every table, so ours is restored with all its slots. */
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

  /** Each of our texts sets the table's state regardless of its previous one, so a text may be loaded twice. */
  async #nft(text: string): Promise<void> {
    await this.#options.spawner.check(["nft", "-f", "-"], { input: text, repeatable: true });
  }
}

type Element = { val: string; expires?: number; comment?: string; counter?: { packets: number } };

/** Returns the elements of a set as nft prints it in JSON: a bare value for an element without attributes. */
function elementsOf(listing: string): Element[] {
  const { nftables } = JSON.parse(listing) as { nftables: { set?: { elem?: (string | { elem: Element })[] } }[] };
  return nftables.flatMap(({ set }) => (set?.elem ?? []).map((entry) => (typeof entry === "string" ? { val: entry } : entry.elem)));
}
