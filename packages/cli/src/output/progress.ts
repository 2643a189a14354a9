// One line of progress on a terminal, and a summary at the end.
import { byteSize, duration } from "@svc/contract/table.ts";

const REDRAW_MS = 100;
const BAR_WIDTH = 24;

export type Progress = {
  /** Counts further bytes that were transferred. */
  add(bytes: number): void;
  fileDone(): void;
  close(isComplete: boolean): void;
};

/** Draws on stderr if that is a terminal. `totalBytes` undefined means that the size is not known before the end. */
export function openProgress(title: string, totalBytes: number | undefined, totalFiles: number, quiet: boolean): Progress {
  const startedAt = performance.now();
  const isDrawn = !quiet && process.stderr.isTTY === true;
  let bytes = 0;
  let files = 0;
  const draw = () => {
    const seconds = Math.max(0.001, (performance.now() - startedAt) / 1000);
    const rate = bytes / seconds;
    const parts = [title];
    if (totalBytes !== undefined && totalBytes > 0) {
      const share = Math.min(1, bytes / totalBytes);
      const full = Math.round(share * BAR_WIDTH);
      parts.push(`[${"#".repeat(full)}${"-".repeat(BAR_WIDTH - full)}] ${Math.floor(share * 100)} %`, `${byteSize(bytes)} of ${byteSize(totalBytes)}`);
      if (rate > 0 && share < 1) parts.push(`${duration(((totalBytes - bytes) / rate) * 1000)} left`);
    } else parts.push(byteSize(bytes));
    parts.push(`${byteSize(rate)}/s`);
    if (totalFiles > 1) parts.push(`${files} of ${totalFiles} files`);
    const line = parts.join("  ").slice(0, Math.max(20, (process.stderr.columns || 80) - 1));
    process.stderr.write(`\r\x1b[K${line}`);
  };
  const timer = isDrawn ? setInterval(draw, REDRAW_MS) : undefined;
  return {
    add(count) {
      bytes += count;
    },
    fileDone() {
      files++;
    },
    close(isComplete) {
      clearInterval(timer);
      if (isDrawn) process.stderr.write("\r\x1b[K");
      if (quiet || !isComplete) return;
      const ms = performance.now() - startedAt;
      const rate = byteSize(bytes / Math.max(0.001, ms / 1000));
      process.stderr.write(`${title}: ${totalFiles === 1 ? "" : `${totalFiles} files, `}${byteSize(bytes)} in ${(ms / 1000).toFixed(1)} s (${rate}/s)\n`);
    },
  };
}
