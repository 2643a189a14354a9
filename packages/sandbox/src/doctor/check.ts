// The shape of one line of `svc doctor`, and the two ways to make it.

export type Check = {
  readonly name: string;
  readonly works: boolean;
  /** What was found. */
  readonly says: string;
  /** What cannot be done without it; empty when it works. */
  readonly follows: string;
  /** What to do about it; empty when there is nothing to do. */
  readonly fix: string;
};

export function passed(name: string, says: string): Check {
  return { name, works: true, says, follows: "", fix: "" };
}

export function failed(name: string, says: string, follows: string, fix: string): Check {
  return { name, works: false, says, follows, fix };
}
