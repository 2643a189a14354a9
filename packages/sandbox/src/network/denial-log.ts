// Folds equal denials: the first is reported at once, and its repetitions within a second as one more entry with a count.
import type { Denial } from "./denial.ts";

export const FOLD_MS = 1000;
/** Bound on different denials of all sandboxes within FOLD_MS; further ones are reported without folding. */
const MAX_FOLDED = 4096;

export type Folder = {
  report(denial: Denial): void;
  /** Reports the folded denials. */
  close(): void;
};

export function openFolder(onDenied: (denial: Denial) => void): Folder {
  const folded = new Map<string, { denial: Denial; more: number }>();
  let timer: NodeJS.Timeout | undefined;

  function unfold(): void {
    clearTimeout(timer);
    timer = undefined;
    const ready = [...folded.values()];
    folded.clear();
    for (const { denial, more } of ready) if (more > 0) onDenied({ ...denial, repeated: more });
  }

  return {
    report(denial) {
      const { slot, reason, protocol, address, port = "", name = "", detail } = denial;
      const key = [slot.netns, reason, protocol, address, port, reason === "dns" ? name : reason === "rules" ? `${name} ${detail}` : ""].join(" ");
      const same = folded.get(key);
      if (same !== undefined) {
        same.more += denial.repeated;
        same.denial = denial;
        return;
      }
      if (folded.size < MAX_FOLDED) folded.set(key, { denial, more: 0 });
      timer ??= setTimeout(unfold, FOLD_MS).unref();
      onDenied(denial);
    },
    close: unfold,
  };
}
