// Writes log lines immediately and never waits: a stalled reader or a full disk loses lines, which are counted.
import { constants, fstatSync, openSync, writeSync } from "node:fs";
import { Socket } from "node:net";

/** The limit of buffered lines for a slow reader; further lines are dropped. */
const MAX_WAITING_BYTES = 4 * 1024 * 1024;

export interface LogOutput {
  write(line: string): void;
}

/** @param lost renders the line that reports dropped lines and the reason, once writing works again */
export function openLogOutput(fd: number, lost: (lines: number, why: string) => string): LogOutput {
  const stat = fstatSync(fd);
  // A file or a terminal is written synchronously, because the line just before a crash is the one that matters.
  if (!stat.isFIFO() && !stat.isSocket()) return openFileOutput(fd, lost);
  const own = stat.isFIFO() ? ownPipe(fd) : fd;
  // The socket writes what the kernel accepts and buffers the rest in memory.
  const stream = new Socket({ fd: own, readable: false, writable: true });
  stream.on("error", () => {}); // the reader is gone, so there is no one to report this to
  // We keep the descriptor open: a file opened later could otherwise reuse its number and receive log lines.
  stream._destroy = (error, done) => done(error);
  stream.unref();
  let dropped = 0;
  stream.on("drain", () => {
    if (dropped === 0) return;
    const count = dropped;
    dropped = 0;
    stream.write(lost(count, "nobody read them"));
  });
  return {
    write(line) {
      if (stream.writableLength + line.length > MAX_WAITING_BYTES) dropped++;
      else stream.write(line);
    },
  };
}

/** Reopens the pipe, because O_NONBLOCK on the shared descriptor would also affect other processes that write to it. */
function ownPipe(fd: number): number {
  try {
    return openSync(`/proc/self/fd/${fd}`, constants.O_WRONLY | constants.O_NONBLOCK);
  } catch (error) {
    if (!["EACCES", "EPERM", "ENOENT", "ENXIO"].includes((error as NodeJS.ErrnoException).code ?? "")) throw error;
    // Without /proc, or for another user's pipe, a server that starts matters more than a neighbour that may get EAGAIN.
    return fd;
  }
}

/** A log that cannot be written must not stop the server or fail a request. */
function openFileOutput(fd: number, lost: (lines: number, why: string) => string): LogOutput {
  let dropped = 0;
  /** True if the last write stopped within a line. */
  let isTorn = false;

  function writeAll(text: string): boolean {
    const bytes = Buffer.from(isTorn ? `\n${text}` : text);
    let at = 0;
    try {
      while (at < bytes.length) at += writeSync(fd, bytes, at);
      isTorn = false;
      return true;
    } catch {
      isTorn ||= at > 0;
      return false;
    }
  }

  return {
    write(line) {
      if (dropped > 0 && writeAll(lost(dropped, "the log could not be written"))) dropped = 0;
      if (dropped > 0 || !writeAll(line)) dropped++;
    },
  };
}
