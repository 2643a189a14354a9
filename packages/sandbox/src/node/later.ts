// Parts that earlier parts of a node call: each is set where it opens, and is called only once sandboxes can be started.
import assert from "node:assert/strict";

export class Later<T extends object> {
  readonly #parts: Partial<T> = {};

  /** Sets parts that have been opened. */
  set(parts: Partial<T>): void {
    Object.assign(this.#parts, parts);
  }

  get<K extends keyof T & string>(name: K): T[K] {
    const part = this.#parts[name];
    assert(part !== undefined, `the node's part '${name}' is used before it is open`);
    return part as T[K];
  }
}
