// Writes to stdout or stderr at the pace of its reader.
import type { WriteStream } from "node:tty";

/** Thrown when the reader of a stream is gone. */
export class UnwrittenError extends Error {}

const broken = new WeakSet<object>();

/** Resolves when the stream accepts more; throws UnwrittenError once its reader is gone. */
export function write(stream: WriteStream, data: Buffer): Promise<void> {
  // run.ts ends the process quietly on a broken pipe; a caller of this function handles it instead.
  if (!broken.has(stream)) {
    broken.add(stream);
    stream.removeAllListeners("error");
    stream.on("error", () => {});
  }
  return new Promise((resolve, reject) => {
    stream.write(data, (error) => (error == null ? resolve() : reject(new UnwrittenError(error.message))));
  });
}
