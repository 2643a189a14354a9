// Where log lines go: written at once, and never waited for. A reader that stalls, or a full disk, loses lines, which are counted.
import { constants, fstatSync, openSync, writeSync } from "node:fs";
import { Socket } from "node:net";

/** Lines that wait for a reader; past it they are dropped. */
const MAX_WAITING_BYTES = 4 * 1024 * 1024;

export interface LogOutput {
  write(line: string): void;
}

/** @param lost what is written about lines that were dropped, and why, once there is room again */
export function openLogOutput(fd: number, lost: (lines: number, why: string) => string): LogOutput {
  const stat = fstatSync(fd);
  // A file or a terminal takes each line before the call returns: one written just before a crash is the one that is wanted.
  if (!stat.isFIFO() && !stat.isSocket()) return openFileOutput(fd, lost);
  const own = stat.isFIFO() ? ownPipe(fd) : fd;
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
    stream.write(lost(count, "nobody read them"));
  });
  return {
    write(line) {
      if (stream.writableLength + line.length > MAX_WAITING_BYTES) dropped++;
      else stream.write(line);
    },
  };
}

/** The pipe opened anew, so that no other process that writes to it finds itself without waiting, too; as it is where it is another user's. */
function ownPipe(fd: number): number {
  try {
    return openSync(`/proc/self/fd/${fd}`, constants.O_WRONLY | constants.O_NONBLOCK);
  } catch (error) {
    if (!["EACCES", "EPERM", "ENOENT", "ENXIO"].includes((error as NodeJS.ErrnoException).code ?? "")) throw error;
    // Without /proc, or after setpriv or sudo, a server that starts matters more than the waiting of its neighbours.
    return fd;
  }
}

/** A log that cannot be written ends no server and fails no request: what is served matters more than that it is told. */
function openFileOutput(fd: number, lost: (lines: number, why: string) => string): LogOutput {
  let dropped = 0;
  /** The file ends within a line. */
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
