// The messages between the console's page and the server that serves it. The page imports this file, so it imports nothing.

/** One sandbox in the console's table; times are in milliseconds since 1970. */
export type ConsoleRow = {
  readonly id: string;
  readonly template: string;
  readonly alias?: string;
  readonly state: "running" | "paused" | "ended";
  readonly startedAt: number;
  readonly endAt: number;
  readonly cpu: number;
  readonly memoryMB: number;
  readonly diskMB: number;
  readonly metadata: Readonly<Record<string, string>>;
  readonly parent?: string;
  readonly depth: number;
  /** Set for an ended sandbox. */
  readonly reason?: string;
  readonly endedAt?: number;
};

/** One line of the deployment's history; `details` are the event's own. */
export type ConsoleEvent = {
  readonly id: number;
  readonly at: number;
  readonly type: string;
  readonly sandboxID?: string;
  readonly templateID?: string;
  readonly details: Readonly<Record<string, string | number | boolean>>;
};

/** The answer of GET /console/api/session: what the serving process is and allows. */
export type ConsoleSession = {
  readonly kind: ConsoleKind;
  readonly title: string;
  readonly version: string;
  readonly isReadOnly: boolean;
  /** The domain below which a sandbox's ports answer: PORT-ID.DOMAIN. */
  readonly domain: string;
  /** The operations that this server serves. */
  readonly operations: readonly string[];
  /** True on a gateway, which lists nodes. */
  readonly hasNodes: boolean;
  /** True where the server keeps an audit log that this session may see. */
  readonly hasAudit: boolean;
  readonly expiresAt: number;
  readonly now: number;
};

export type ConsoleKind = "node" | "gateway" | "master" | "indexer";

/** One sample of the metrics ring; members that a server does not have are absent. */
export type ConsoleSample = { readonly at: number } & Readonly<Record<string, number>>;

/** Messages of the page, as JSON text. */
export type FromPage =
  | { readonly t: "hello"; readonly half: string }
  | {
      readonly t: "open";
      readonly id: number;
      readonly kind: "terminal";
      readonly sandboxID: string;
      readonly session: string;
      readonly cols: number;
      readonly rows: number;
    }
  | { readonly t: "open"; readonly id: number; readonly kind: "log"; readonly sandboxID: string }
  | { readonly t: "input"; readonly id: number; readonly data: string }
  | { readonly t: "resize"; readonly id: number; readonly cols: number; readonly rows: number }
  | { readonly t: "close"; readonly id: number };

/** Messages of the server, as JSON text. The output of a terminal is a binary message: the channel in four bytes, big endian, then the bytes. */
export type FromServer =
  | { readonly t: "ready" }
  /** The whole table, in several messages; the first one clears what the page has. */
  | { readonly t: "rows"; readonly rows: readonly ConsoleRow[]; readonly isFirst: boolean; readonly isLast: boolean }
  | { readonly t: "batch"; readonly rows: readonly ConsoleRow[]; readonly gone: readonly string[]; readonly events: readonly ConsoleEvent[] }
  /** The source of events does not answer, or does again. */
  | { readonly t: "source"; readonly isUp: boolean; readonly why: string }
  | { readonly t: "started"; readonly id: number; readonly pid: number }
  | { readonly t: "log"; readonly id: number; readonly entries: readonly ConsoleLogEntry[] }
  | { readonly t: "end"; readonly id: number; readonly exitCode?: number; readonly error?: string };

export type ConsoleLogEntry = {
  readonly timestamp: string;
  readonly message: string;
  readonly level: string;
  readonly fields: Readonly<Record<string, string>>;
};

/** The header in which the page sends its half of the session; the other half is the cookie. */
export const CONSOLE_HEADER = "x-svc-console";
export const CONSOLE_PATH = "/console";
/** The path of the page's socket, the only one of the control plane that upgrades. */
export const CONSOLE_SOCKET = "/console/live";
/** The subprotocol is fixed, so that a socket meant for another service is refused. */
export const CONSOLE_PROTOCOL = "svc-console-1";
export const MAX_ENDED_ROWS = 2_000;
export const MAX_EVENTS = 1_000;
