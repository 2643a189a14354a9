// A step of a template build as the conversion of a Dockerfile plans it.

export type PlannedStep = {
  readonly type: "COPY" | "RUN" | "ENV" | "WORKDIR" | "USER" | "FROM";
  readonly args: string[];
  readonly force?: boolean;
  /** The hash of a COPY step's files, set once they are uploaded; see build-context.ts. */
  readonly filesHash?: string;
  /** Where a COPY takes its files from instead of the context: `stage:NUMBER` or an image. */
  readonly from?: string;
  /** The build secrets that a RUN sees. */
  readonly secrets?: SecretMount[];
};

export type SecretMount = { readonly id: string; readonly target?: string; readonly env?: string; readonly required?: boolean };

/** Throws INVALID_REQUEST with the line of the Dockerfile and the reason. */
export type Refuse = (why: string) => never;
