// Where log lines go: written at once, and never waited for. A reader that stalls loses lines, which are counted.
import { constants, fstatSync, openSync, writeSync } from "node:fs";
import { Socket } from "node:net";

/** Lines that wait for a reader; past it they are dropped. */
const MAX_WAITING_BYTES = 4 * 1024 * 1024;

export interface LogOutput {
  write(line: string): void;
}

/** @param lost what is written about lines that were dropped, once there is room again */
export function openLogOutput(fd: number, lost: (lines: number) => string): LogOutput {
  const stat = fstatSync(fd);
  // A file or a terminal takes each line before the call returns: one written just before a crash is the one that is wanted.
  if (!stat.isFIFO() && !stat.isSocket()) return { write: (line) => void writeSync(fd, line) };
  // A pipe of our own, so that no other process that writes to it finds itself without waiting, too.
  const own = stat.isFIFO() ? openSync(`/proc/self/fd/${fd}`, constants.O_WRONLY | constants.O_NONBLOCK) : fd;
  // It writes at once what the kernel takes; the rest waits in memory.
  const stream = new Socket({ fd: own, readable: false, writable: true });
  stream.on("error", () => {}); // the reader is gone, and there is nobody to tell
  // A file opened later must not get the descriptor, and with it what others of this process still write to it.
  stream._destroy = (error, done) => done(error);
  stream.unref();
  let dropped = 0;
  stream.on("drain", () => {
    if (dropped === 0) return;
    const count = dropped;
    dropped = 0;
    stream.write(lost(count));
  });
  return {
    write(line) {
      if (stream.writableLength + line.length > MAX_WAITING_BYTES) dropped++;
      else stream.write(line);
    },
  };
}
