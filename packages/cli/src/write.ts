// Writes to stdout or stderr at the pace of who reads them.
import type { WriteStream } from "node:tty";

/** Nobody reads any more. */
export class UnwrittenError extends Error {}

const broken = new WeakSet<object>();

/** Resolves when the stream wants more; throws UnwrittenError once its reader is gone. */
export function write(stream: WriteStream, data: Buffer): Promise<void> {
  // The process ends quietly on a broken pipe (run.ts); who writes with care replaces that.
  if (!broken.has(stream)) {
    broken.add(stream);
    stream.removeAllListeners("error");
    stream.on("error", () => {});
  }
  return new Promise((resolve, reject) => {
    stream.write(data, (error) => (error == null ? resolve() : reject(new UnwrittenError(error.message))));
  });
}
