// Batches task queries: those of one tick of the event loop go to the master in one call.
import { fail } from "@svc/contract/failures.ts";
import type { ResultOf } from "@svc/store/rpc/operations.ts";

export type TaskAnswer = ResultOf<"QueryTask">;
type Asked = { readonly id: string; resolve(answer: TaskAnswer): void; reject(error: unknown): void };

/** The limit per call keeps the answer small, so that other calls are not delayed. */
const MAX_AT_ONCE = 256;

export class TaskStates {
  readonly #ask: (authority: string, ids: readonly string[]) => Promise<readonly TaskAnswer[]>;
  readonly #asked = new Map<string, Asked[]>();

  constructor(ask: (authority: string, ids: readonly string[]) => Promise<readonly TaskAnswer[]>) {
    this.#ask = ask;
  }

  of(id: string, authority: string): Promise<TaskAnswer> {
    return new Promise((resolve, reject) => {
      const asked = this.#asked.get(authority);
      if (asked === undefined) queueMicrotask(() => this.#send(authority));
      this.#asked.set(authority, [...(asked ?? []), { id, resolve, reject }]);
    });
  }

  #send(authority: string): void {
    const all = this.#asked.get(authority) ?? [];
    this.#asked.delete(authority);
    for (let at = 0; at < all.length; at += MAX_AT_ONCE) void this.#sendSome(authority, all.slice(at, at + MAX_AT_ONCE));
  }

  async #sendSome(authority: string, some: readonly Asked[]): Promise<void> {
    try {
      const ids = some.map(({ id }) => id);
      const answers = await this.#ask(authority, ids);
      if (answers.length !== ids.length) fail("HOST_UNSUITABLE", `the master answered for ${answers.length} of ${ids.length} tasks`);
      for (const [at, answer] of answers.entries()) some[at]?.resolve(answer);
    } catch (error) {
      for (const { reject } of some) reject(error);
    }
  }
}
