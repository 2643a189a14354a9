// The audit log: one JSON line per change, per refused credential and per action of the node itself; appended, never rewritten.
import { closeSync, fstatSync, openSync, readSync, statSync } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import type { Log } from "@svc/kit/log.ts";
import type { AuditEntry } from "@svc/kit/serve-audit.ts";
import { TokenBucket } from "@svc/kit/token-bucket.ts";

/** An action of the node without a request. */
export type AuditNote = {
  readonly what: string;
  readonly sandboxID?: string;
  readonly templateID?: string;
  /** The address of the client whose traffic was the cause. */
  readonly client?: string;
  readonly reason?: string;
  readonly outcome?: string;
};

export interface Audit {
  /** Never blocks and never throws; lines are written in the order of the calls. */
  entry(entry: AuditEntry): void;
  note(note: AuditNote): void;
  /** Opens a new file if the old one was moved away; the next line notices that as well. */
  reopen(): void;
  /** The number of lines that were not written. */
  readonly lost: number;
  /** The number of refused credentials that have no line of their own. */
  readonly uncounted: number;
  /** Resolves when all earlier entries are in the file. */
  flush(): Promise<void>;
  close(): Promise<void>;
}

/** The maximum number of lines that wait for a slow disk. */
const MAX_WAITING = 20_000;
const BATCH = 500;
const RETRY_MS = 1_000;
const CLOSE_BOUND_MS = 2_000;
const NEWLINE = 10;
/** Clients without a key must not fill the disk: further refusals are only counted. */
const REFUSALS = { burst: 100, perSecond: 5 };
const SUMMARY_MS = 10_000;

export type AuditOptions = { readonly path: string; readonly log: Log; readonly wallMs?: () => number };

export function openAudit({ path, log, wallMs = Date.now }: AuditOptions): Audit {
  const waiting: string[] = [];
  let file: FileHandle | undefined;
  let working: Promise<void> | undefined;
  let lost = 0;
  let lostUnreported = 0;
  let isFailing = false;
  let isClosed = false;
  let mustReopen = false;
  const refusals = { bucket: new TokenBucket(REFUSALS, wallMs()), left: 0, all: 0 };

  function put(line: object): void {
    if (isClosed) return;
    if (waiting.length >= MAX_WAITING) {
      lost++;
      lostUnreported++;
      return;
    }
    waiting.push(JSON.stringify(line));
    working ??= work().finally(() => {
      working = undefined;
    });
  }

  async function work(): Promise<void> {
    await Promise.resolve(); // all entries of this tick go into one write
    while (waiting.length > 0) {
      const batch = waiting.slice(0, BATCH);
      const written = { lines: 0 };
      try {
        await write(batch, written);
        if (isFailing) log.info({ path, lost }, "the audit log is written again");
        isFailing = false;
      } catch (error) {
        if (!isFailing) log.error({ err: error, path }, "the audit log cannot be written; its lines wait in memory, retrying every second");
        isFailing = true;
        mustReopen = true;
      }
      waiting.splice(0, written.lines);
      if (isFailing && isClosed) return;
      if (isFailing) await new Promise((resolve) => setTimeout(resolve, RETRY_MS).unref());
      else if (lostUnreported > 0) {
        waiting.push(lossLine(lostUnreported));
        lostUnreported = 0;
      }
    }
  }

  async function write(lines: readonly string[], written: { lines: number }): Promise<void> {
    if (file !== undefined && (mustReopen || !(await isStillAt(file, path)))) {
      const old = file;
      file = undefined;
      await old.close().catch(() => {});
    }
    mustReopen = false;
    if (file === undefined) {
      const isTorn = endsWithinLine(path);
      file = await open(path, "a", 0o600);
      if (isTorn) await file.write("\n");
    }
    const text = Buffer.from(`${lines.join("\n")}\n`);
    // A full disk may accept only a part; complete lines are not written again.
    for (let at = 0; at < text.length; ) {
      const { bytesWritten } = await file.write(text, at);
      for (const byte of text.subarray(at, at + bytesWritten)) if (byte === NEWLINE) written.lines++;
      at += bytesWritten;
    }
  }

  function lossLine(count: number): string {
    return JSON.stringify({ at: new Date(wallMs()).toISOString(), kind: "loss", lines: count });
  }

  /** Returns true if a refusal may have a line of its own. */
  function mayWrite(): boolean {
    if (refusals.bucket.take(wallMs())) return true;
    refusals.left++;
    refusals.all++;
    return false;
  }

  function summarise(): void {
    if (refusals.left === 0) return;
    put({ at: new Date(wallMs()).toISOString(), kind: "refusals", further: refusals.left });
    refusals.left = 0;
  }

  const summarising = setInterval(summarise, SUMMARY_MS).unref();
  const reopen = () => {
    mustReopen = true;
  };
  // On a terminal SIGHUP means that the terminal is gone, and it ends the node as usual.
  const isReopenedBySignal = process.stdin.isTTY !== true;
  if (isReopenedBySignal) process.on("SIGHUP", reopen);

  return {
    entry(entry) {
      if ((entry.status === 401 || entry.status === 403) && !mayWrite()) return;
      const { at, ...rest } = entry;
      put({ at, kind: "request", ...rest });
    },
    note: (note) => put({ at: new Date(wallMs()).toISOString(), kind: "node", ...note }),
    reopen,
    get lost() {
      return lost;
    },
    get uncounted() {
      return refusals.all;
    },
    async flush() {
      while (working !== undefined) await working;
    },
    async close() {
      clearInterval(summarising);
      if (isReopenedBySignal) process.off("SIGHUP", reopen);
      summarise();
      isClosed = true;
      await Promise.race([working, new Promise((resolve) => setTimeout(resolve, CLOSE_BOUND_MS).unref())]);
      if (waiting.length > 0) log.error({ path, lines: waiting.length }, "audit lines were not written before the stop");
      await file?.close().catch(() => {});
    },
  };
}

/** True if the open file is still at the path: after a rename it stays open under its new name. */
async function isStillAt(file: FileHandle, path: string): Promise<boolean> {
  const { ino, dev } = await file.stat();
  const there = statSync(path, { throwIfNoEntry: false });
  return there !== undefined && there.ino === ino && there.dev === dev;
}

function endsWithinLine(path: string): boolean {
  let file: number;
  try {
    file = openSync(path, "r");
  } catch {
    return false;
  }
  try {
    const { size } = fstatSync(file);
    const last = Buffer.alloc(1);
    return size > 0 && readSync(file, last, 0, 1, size - 1) === 1 && last[0] !== NEWLINE;
  } finally {
    closeSync(file);
  }
}
