// One line of `svc doctor`, and its two constructors.

export type Check = {
  readonly name: string;
  readonly works: boolean;
  /** The finding. */
  readonly says: string;
  /** The consequence; empty when it works. */
  readonly follows: string;
  /** The remedy; empty when there is nothing to do. */
  readonly fix: string;
};

export function passed(name: string, says: string): Check {
  return { name, works: true, says, follows: "", fix: "" };
}

export function failed(name: string, says: string, follows: string, fix: string): Check {
  return { name, works: false, says, follows, fix };
}
