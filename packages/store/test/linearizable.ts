// Checks whether a history of one key is linearizable: explained by one register that is written, read and emptied step by step.

/** With `to` Infinity and `sure` false, the step may have happened at any later time, or never. */
export type Step = { readonly from: number; readonly to: number; readonly sure: boolean } & (
  | { readonly kind: "write" | "read"; readonly value: bigint | undefined }
  | { readonly kind: "remove"; readonly value?: undefined }
);

/** Returns the value after a step, or "no" if the step cannot come next. */
function after(value: bigint | undefined, step: Step): bigint | undefined | "no" {
  if (step.kind === "write") return step.value;
  if (step.kind === "read") return step.value === value ? value : "no";
  // An acknowledged removal requires that a value existed.
  return step.sure && value === undefined ? "no" : undefined;
}

/** Searches for an order of the steps, each within its time, that explains every answer. */
export function isLinearizable(steps: readonly Step[]): boolean {
  const seen = new Set<string>();
  function search(value: bigint | undefined, left: readonly number[]): boolean {
    const sure = left.filter((at) => steps[at]?.sure);
    if (sure.length === 0) return true;
    const state = `${value}/${left}`;
    if (seen.has(state)) return false;
    seen.add(state);
    // The next step must have begun before any remaining one had ended.
    const firstEnd = Math.min(...sure.map((at) => (steps[at] as Step).to));
    return left.some((at) => {
      const step = steps[at] as Step;
      if (step.from > firstEnd) return false;
      const next = after(value, step);
      return (
        next !== "no" &&
        search(
          next,
          left.filter((other) => other !== at),
        )
      );
    });
  }
  return search(
    undefined,
    steps.map((_step, at) => at),
  );
}
