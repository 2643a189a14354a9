// Numbers, sizes and times as people read them.

const MIB = 1024 ** 2;

export function bytes(value: number | undefined): string {
  if (value === undefined || !Number.isFinite(value)) return "–";
  const units = ["B", "KB", "MB", "GB", "TB"];
  let at = 0;
  let scaled = value;
  while (scaled >= 1000 && at < units.length - 1) {
    scaled /= 1024;
    at++;
  }
  return `${at === 0 || scaled >= 100 ? Math.round(scaled) : scaled.toFixed(1)} ${units[at]}`;
}

export const megabytes = (value: number): string => bytes(value * MIB);
export const count = (value: number): string => value.toLocaleString("en");
export const percent = (share: number): string => `${Math.round(share * 100)} %`;

/** "4 min", "2 h 10 min": how long something takes. */
export function duration(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return minutes < 10 ? `${minutes} min ${seconds % 60} s` : `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d`;
}

/** "0.4 ms", "180 ms", "2.3 s": a latency given in seconds. */
export function latency(seconds: number | undefined): string {
  if (seconds === undefined) return "–";
  return seconds < 1 ? `${seconds < 0.01 ? (seconds * 1000).toFixed(1) : Math.round(seconds * 1000)} ms` : `${seconds.toFixed(1)} s`;
}

export const rate = (perSecond: number | undefined): string =>
  perSecond === undefined ? "–" : perSecond >= 10 ? String(Math.round(perSecond)) : perSecond.toFixed(perSecond < 1 ? 2 : 1);

export const exact = (ms: number): string => new Date(ms).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });

/** The label of each kind of event. */
export const eventWords: Readonly<Record<string, string>> = {
  "sandbox.created": "created",
  "sandbox.paused": "paused",
  "sandbox.resumed": "resumed",
  "sandbox.forked": "forked",
  "sandbox.snapshotted": "snapshot taken",
  "sandbox.network_changed": "network rules replaced",
  "sandbox.timeout_set": "time to live set",
  "sandbox.pause_failed": "pause failed",
  "sandbox.limit_reached": "limit reached",
  "sandbox.ended": "ended",
  "sandbox.moved": "moved to another node",
};

const reasons: Readonly<Record<string, string>> = {
  killed: "deleted by a request",
  timeout: "its time to live ran out",
  oom: "it ran out of memory",
  crashed: "it crashed",
  node_lost: "its node was lost",
};
export const reasonWords = (reason: string): string => reasons[reason] ?? reason;
