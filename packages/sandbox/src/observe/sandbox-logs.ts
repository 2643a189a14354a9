// One log per sandbox: the node's actions on it, its processes, its denied connections; bounded in bytes and rate.
import assert from "node:assert/strict";
import { mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { setImmediate as yieldToLoop } from "node:timers/promises";
import { type LogEntry, logKinds, logLevels } from "@svc/contract/observe.ts";
import type { Log } from "@svc/kit/log.ts";
import type { ProcessPage } from "../agent/process-log.ts";
import { type Line, LogFile, lineAt, positionsOf } from "./log-file.ts";
import { FloodGate, type FloodLimits } from "./log-flood.ts";
import { processLine } from "./process-lines.ts";

export type LogKind = (typeof logKinds)[number];
export type Written = {
  readonly kind: LogKind;
  readonly level: LogEntry["level"];
  readonly message: string;
  readonly fields?: Readonly<Record<string, string>>;
};

export type LogQuery = {
  /** Milliseconds since 1970. Forward: entries from this time on. Backward: earlier entries only. */
  readonly cursor?: number | undefined;
  readonly limit: number;
  readonly direction: "forward" | "backward";
  /** Entries of this level and above. */
  readonly level?: LogEntry["level"] | undefined;
  readonly kind?: LogKind | undefined;
  /** A part of the message, compared without case. */
  readonly search?: string | undefined;
};

export interface SandboxLogs {
  /** Writes an entry; fast, never throws and never waits. An entry of kind lifecycle is on disk when this returns, unless the disk is full. */
  write(sandboxID: string, entry: Written): void;
  /** Writes an entry about a denied connection; `text` is a sentence with the reason. */
  writeDenial(sandboxID: string, denial: { readonly text: string; readonly fields?: Readonly<Record<string, string>> }): void;
  /** Reads entries. Forward: oldest first. Backward: newest first. */
  read(sandboxID: string, query: LogQuery): Promise<LogEntry[]>;
  /** Returns the run and number of the last entry copied from envd's log; later entries are still to be fetched. */
  processesKnown(sandboxID: string): { readonly run: string; readonly seq: number };
  /** Copies a page of envd's log, one page per sandbox at a time. Entries before `sinceMs` belong to another sandbox (the source of a fork). */
  writeProcesses(sandboxID: string, page: ProcessPage, sinceMs: number): Promise<void>;
  /** Removes the logs of sandboxes that are gone; called once the records are restored after a start. */
  sweep(): void;
  readonly suppressed: ReadonlyMap<LogKind, number>;
  close(): void;
}

export type SandboxLogsOptions = {
  readonly directory: string;
  readonly log: Log;
  /** True if the sandbox exists, or ended within the hour. */
  readonly isKept: (sandboxID: string) => boolean;
  readonly wallMs?: () => number;
  readonly fileBytes?: number;
};

/** The limits are per kind, so that a flood of one does not displace the others. One call to envd may return a thousand entries. */
const floodLimits: Readonly<Record<LogKind, FloodLimits>> = {
  lifecycle: { burst: 500, perSecond: 50 },
  process: { burst: 1_000, perSecond: 50 },
  network: { burst: 200, perSecond: 20 },
};
const FLUSH_MS = 250;
const SWEEP_MS = 5 * 60_000;
const LINES_PER_SLICE = 500;
const MAX_MESSAGE = 2_048;
const MAX_FIELDS = 16;
const MAX_FIELD = 1_024;
const namesFile = /^[a-z0-9]{8,64}$/;
const fileName = /^([a-z0-9]{8,64})\.jsonl(\.1)?$/;

type Journal = {
  readonly file: LogFile;
  readonly pending: string[];
  readonly gates: Map<LogKind, FloodGate>;
  /** The latest time of any line; the next line gets a later one. */
  lastMs: number;
  /** The latest time that a reader has seen; entries fetched from envd afterwards must come after it. */
  shownMs: number;
  run: string;
  seq: number;
  /** While the file is read: the times of the lines written in the meantime. */
  meanwhile?: Set<number> | undefined;
};

export function openSandboxLogs({ directory, log, isKept, wallMs = Date.now, fileBytes }: SandboxLogsOptions): SandboxLogs {
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const journals = new Map<string, Journal>();
  const dirty = new Set<Journal>();
  const suppressed = new Map<LogKind, number>(logKinds.map((kind) => [kind, 0]));
  let isFailing = false;

  function journalOf(sandboxID: string): Journal {
    const known = journals.get(sandboxID);
    if (known !== undefined) return known;
    assert.match(sandboxID, namesFile, "an id that is not the name of a file");
    const file = new LogFile(join(directory, `${sandboxID}.jsonl`), fileBytes);
    const journal: Journal = { file, pending: [], gates: new Map(), lastMs: 0, shownMs: 0, run: "", seq: 0 };
    // After a restart, time and envd's numbers continue from the last lines.
    const text = file.read();
    const positions = positionsOf(text);
    journal.lastMs = journal.shownMs = positions.at(-1)?.t ?? 0;
    for (const position of positions) {
      const { r, s } = lineAt(text, position) ?? {};
      if (r === undefined || s === undefined) continue;
      journal.seq = r === journal.run ? Math.max(journal.seq, s) : s;
      journal.run = r;
    }
    journals.set(sandboxID, journal);
    return journal;
  }

  function put(journal: Journal, line: Line): void {
    journal.lastMs = Math.max(journal.lastMs, line.t);
    journal.meanwhile?.add(line.t);
    journal.pending.push(JSON.stringify(line));
    dirty.add(journal);
  }

  function mayWrite(journal: Journal, kind: LogKind): boolean {
    const nowMs = wallMs();
    let gate = journal.gates.get(kind);
    if (gate === undefined) journal.gates.set(kind, (gate = new FloodGate(floodLimits[kind], nowMs)));
    if (gate.take(nowMs)) return true;
    suppressed.set(kind, (suppressed.get(kind) ?? 0) + 1);
    dirty.add(journal);
    return false;
  }

  function writeEntry(sandboxID: string, { kind, level, message, fields = {} }: Written): void {
    const journal = journalOf(sandboxID);
    if (!mayWrite(journal, kind)) return;
    put(journal, { t: Math.max(wallMs(), journal.lastMs + 1), k: kind, l: level, m: message.slice(0, MAX_MESSAGE), ...bounded(fields) });
    if (kind === "lifecycle") flush(journal);
  }

  function flush(journal: Journal, atOnce = false): void {
    let isFlooded = false;
    for (const [kind, gate] of journal.gates) {
      const count = gate.summary(wallMs(), atOnce);
      if (count > 0) put(journal, floodLine(journal.lastMs, wallMs(), kind, count));
      isFlooded ||= gate.isSuppressing;
    }
    // Suppressed entries are still to be reported, so the timer must come back.
    if (!isFlooded) dirty.delete(journal);
    if (journal.pending.length === 0) return;
    const lines = journal.pending.splice(0);
    try {
      journal.file.append(lines);
      isFailing = false;
    } catch (error) {
      if (!isFailing) log.error({ err: error, directory, entries: lines.length }, "entries of a sandbox's log are lost: they could not be written");
      isFailing = true;
    }
  }

  function sweep(): void {
    for (const name of readdirSync(directory)) {
      const sandboxID = fileName.exec(name)?.[1];
      if (sandboxID === undefined || isKept(sandboxID)) continue;
      (journals.get(sandboxID)?.file ?? new LogFile(join(directory, `${sandboxID}.jsonl`))).remove();
    }
    for (const [sandboxID, journal] of journals) {
      if (isKept(sandboxID)) continue;
      journals.delete(sandboxID);
      dirty.delete(journal);
    }
  }

  const flushing = setInterval(() => {
    for (const journal of [...dirty]) flush(journal);
  }, FLUSH_MS).unref();
  const sweeping = setInterval(sweep, SWEEP_MS).unref();

  const logs: SandboxLogs = {
    write(sandboxID, entry) {
      try {
        writeEntry(sandboxID, entry);
      } catch (error) {
        // The caller has already done what the entry reports, so an unreadable log must not undo a create or an end.
        log.error({ err: error, sandboxID }, "an entry of a sandbox's log is lost: the log cannot be opened");
      }
    },
    writeDenial(sandboxID, { text, fields }) {
      logs.write(sandboxID, { kind: "network", level: "warn", message: text, ...(fields === undefined ? {} : { fields }) });
    },
    async read(sandboxID, query) {
      const journal = journalOf(sandboxID);
      flush(journal, true);
      // A reader may be shown any present entry, so entries fetched from envd later must come after all of them.
      journal.shownMs = Math.max(journal.shownMs, journal.lastMs);
      return select(await journal.file.readLater(), query);
    },
    processesKnown: (sandboxID) => journalOf(sandboxID),
    async writeProcesses(sandboxID, { run, entries }, sinceMs) {
      const journal = journalOf(sandboxID);
      const newer = entries.filter(({ seq }) => run !== journal.run || seq > journal.seq);
      const first = newer[0];
      if (first === undefined) return;
      const overwritten = run === journal.run ? first.seq - journal.seq - 1 : 0;
      flush(journal);
      const meanwhile = new Set<number>();
      journal.meanwhile = meanwhile;
      const text = await journal.file.readLater().finally(() => {
        journal.meanwhile = undefined;
      });
      const taken = new Set(meanwhile);
      for (const { t } of positionsOf(text)) taken.add(t);
      for (const entry of newer) {
        journal.run = run;
        journal.seq = entry.seq;
        if (entry.at < sinceMs || !mayWrite(journal, "process")) continue;
        let t = Math.max(journal.shownMs + 1, Math.min(entry.at, wallMs()));
        while (taken.has(t)) t++;
        taken.add(t);
        const line = processLine(entry);
        // An entry moved after what readers have seen carries its own time in a field.
        put(journal, { t, ...line, ...(t === entry.at ? {} : { f: { ...line.f, at: new Date(entry.at).toISOString() } }), r: run, s: entry.seq });
      }
      if (overwritten > 0) {
        const message = `${overwritten} entries of processes are missing here: more were started than the sandbox keeps until its log is read`;
        logs.write(sandboxID, { kind: "process", level: "warn", message });
      }
      flush(journal);
    },
    sweep,
    suppressed,
    close() {
      clearInterval(flushing);
      clearInterval(sweeping);
      for (const journal of [...dirty]) flush(journal, true);
    },
  };
  return logs;
}

function floodLine(lastMs: number, nowMs: number, kind: LogKind, count: number): Line {
  const { perSecond } = floodLimits[kind];
  const message = `${count} further entries of kind ${kind} were left out: more than ${perSecond} a second`;
  return { t: Math.max(nowMs, lastMs + 1), k: kind, l: "warn", m: message, f: { suppressed: String(count) } };
}

function bounded(fields: Readonly<Record<string, string>>): Pick<Line, "f"> {
  const some = Object.entries(fields).slice(0, MAX_FIELDS);
  return some.length === 0 ? {} : { f: Object.fromEntries(some.map(([name, value]) => [name, String(value).slice(0, MAX_FIELD)])) };
}

/** Selects entries in slices: parsing four megabytes of lines at once would block the event loop for a tenth of a second. */
async function select(text: Buffer, { cursor, limit, direction, level, kind, search }: LogQuery): Promise<LogEntry[]> {
  const isForward = direction === "forward";
  const positions = positionsOf(text).filter(({ t }) => cursor === undefined || (isForward ? t >= cursor : t < cursor));
  const least = level === undefined ? 0 : logLevels.indexOf(level);
  const needle = search?.toLowerCase();
  const entries: LogEntry[] = [];
  let looked = 0;
  for (const position of isForward ? positions : positions.reverse()) {
    if (entries.length >= limit) break;
    if (++looked % LINES_PER_SLICE === 0) await yieldToLoop();
    const line = lineAt(text, position);
    if (line === undefined || logLevels.indexOf(line.l) < least || (kind !== undefined && line.k !== kind)) continue;
    if (needle !== undefined && !line.m.toLowerCase().includes(needle)) continue;
    entries.push({ timestamp: new Date(line.t).toISOString(), message: line.m, level: line.l, fields: { ...line.f, kind: line.k } });
  }
  return entries;
}
