// Requests that wait for an engine with room, the more urgent ones first and otherwise in their order, in a bounded number and for a bounded time.
import type { Ending } from "./ending.ts";
import { Refusal } from "./refusals.ts";

type Waiting<T> = { readonly priority: number; readonly attempt: () => T | undefined; readonly settle: (result: T | Refusal) => void };

export class AdmissionQueue<T> {
  readonly #most: number;
  readonly #waitMs: number;
  readonly #hasRoom: () => boolean;
  #waiting: Waiting<T>[] = [];

  constructor({ length, waitMs, hasRoom }: { length: number; waitMs: number; hasRoom: () => boolean }) {
    this.#most = length;
    this.#waitMs = waitMs;
    this.#hasRoom = hasRoom;
  }

  get length(): number {
    return this.#waiting.length;
  }

  /** The result of `attempt`, unless requests wait that are as urgent: a later one must not overtake them. A lower `priority` is more urgent. */
  now(attempt: () => T | undefined, priority = 0): T | undefined {
    return this.#waiting.length === 0 || this.#waiting.every((other) => priority < other.priority) ? attempt() : undefined;
  }

  /**
   * The result of `attempt` as soon as it has one. It may throw a Refusal, which ends the wait. A lower `priority` is more urgent, as in vLLM.
   * @throws Refusal where the queue is full, or nothing was found in time
   */
  async enter(attempt: () => T | undefined, ending: Ending, priority = 0): Promise<T> {
    const ended = () => ending.reason ?? new Refusal("client_gone", "the client is gone");
    if (ending.isOver) throw ended();
    const found = this.now(attempt, priority);
    if (found !== undefined) return found;
    if (this.#waiting.length >= this.#most) {
      const full = () => new Refusal("queue_full", `all engines are full and ${this.#most} requests wait, the maximum (router.queue)`, 1);
      // The newest request of the lowest priority is refused to make way for a more urgent one.
      const last = this.#waiting.at(-1);
      if (last === undefined || last.priority <= priority) throw full();
      last.settle(full());
      this.#waiting.pop();
    }
    const { promise, resolve } = Promise.withResolvers<T | Refusal>();
    const one: Waiting<T> = { priority, attempt, settle: resolve };
    const leave = (result: Refusal) => {
      this.#waiting = this.#waiting.filter((other) => other !== one);
      resolve(result);
    };
    const timer = setTimeout(
      () => leave(new Refusal("queue_timeout", `no engine had room within ${this.#waitMs / 1000} s (router.queue_timeout_seconds)`, 1)),
      this.#waitMs,
    );
    const gone = () => leave(ended());
    ending.on(gone);
    const at = this.#waiting.findIndex((other) => other.priority > priority);
    this.#waiting.splice(at < 0 ? this.#waiting.length : at, 0, one);
    // The requests that wait already may need another model.
    this.pump();
    const result = await promise;
    clearTimeout(timer);
    ending.off(gone);
    if (result instanceof Refusal) throw result;
    return result;
  }

  /** Something changed: an engine has room, or answers again. */
  pump(): void {
    if (this.#waiting.length === 0) return;
    const staying: Waiting<T>[] = [];
    for (const one of this.#waiting) {
      // This check comes first, because under full load each finished request would otherwise try to place all waiting ones.
      if (!this.#hasRoom()) {
        staying.push(one);
        continue;
      }
      try {
        const found = one.attempt();
        if (found === undefined) staying.push(one);
        else one.settle(found);
      } catch (error) {
        one.settle(error instanceof Refusal ? error : new Refusal("internal", (error as Error).message));
      }
    }
    this.#waiting = staying;
  }

  close(): void {
    for (const { settle } of this.#waiting.splice(0)) settle(new Refusal("shutting_down", "the router is stopping", 1));
  }
}
