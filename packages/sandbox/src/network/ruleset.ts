// A home's firewall table in the kernel: changes in batches, put back when another program removed it.
import type { Log } from "@svc/kit/log.ts";
import type { Spawner } from "@svc/kit/spawn.ts";
import { Batcher } from "./batch.ts";
import { tableOf } from "./names.ts";
import { tableRemovalText } from "./rules.ts";

const MAX_CHANGES_PER_CALL = 64;
/** How long a firewall reload by others can go unseen while no slot changes. */
const CHECK_MS = 5000;

export type RulesetOptions = {
  readonly token: string;
  readonly spawner: Spawner;
  readonly log: Log;
  /** The whole table as it should be now: what all slots share, and every slot in use. */
  readonly wholeText: () => string;
};

export class Ruleset {
  readonly #options: RulesetOptions;
  readonly #changes: Batcher<string>;
  #checking: NodeJS.Timeout | undefined;

  constructor(options: RulesetOptions) {
    this.#options = options;
    this.#changes = new Batcher(MAX_CHANGES_PER_CALL, (texts) => this.#apply(texts.join("")));
  }

  async open(): Promise<void> {
    await this.#nft(this.#options.wholeText());
    const look = `list chain inet ${tableOf(this.#options.token)} refuse\n`;
    this.#checking = setInterval(() => {
      this.change(look).catch((error: unknown) => this.#options.log.error({ err: error }, "the firewall table of sandbox networks could not be checked"));
    }, CHECK_MS);
    this.#checking.unref();
  }

  /** `text` is in force, in one transaction with what others change at the moment. */
  change(text: string): Promise<void> {
    return this.#changes.add(text);
  }

  /** Indices of the slots that have rules. */
  async slotIndices(): Promise<number[]> {
    const listing = await this.#options.spawner.check(["nft", "-t", "list", "table", "inet", tableOf(this.#options.token)]);
    return [...listing.matchAll(/chain slot_(\d+) /g)].map(([, index]) => Number(index));
  }

  async close(): Promise<void> {
    clearInterval(this.#checking);
    await this.#changes.idle();
  }

  remove(): Promise<void> {
    return this.#nft(tableRemovalText(this.#options.token));
  }

  /** A firewall reload by others (`nft flush ruleset`) takes every table along: ours comes back with all its slots. */
  async #apply(text: string): Promise<void> {
    try {
      await this.#nft(text);
    } catch (error) {
      const table = tableOf(this.#options.token);
      const { code } = await this.#options.spawner.run(["nft", "list", "chain", "inet", table, "refuse"]);
      if (code === 0) throw error;
      this.#options.log.error({ table }, "another program removed the firewall table of sandbox networks; putting it back");
      await this.#nft(this.#options.wholeText());
      await this.#nft(text);
    }
  }

  async #nft(text: string): Promise<void> {
    await this.#options.spawner.check(["nft", "-f", "-"], { input: text });
  }
}
