// The abilities that a driver is expected to have; the suites read it.

export type Expected = {
  /** Control groups bound memory, CPU and processes. */
  readonly limits: boolean;
  /** envd can run commands as a user other than root. */
  readonly users: boolean;
  readonly sudo: boolean;
};
