// What a driver is expected to do; the suites read it.

export type Expected = {
  /** Memory, CPU and processes are bounded by control groups. */
  readonly limits: boolean;
  /** envd can run commands as another user than root. */
  readonly users: boolean;
  readonly sudo: boolean;
};
