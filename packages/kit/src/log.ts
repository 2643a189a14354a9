// JSON lines on stderr, one per event, with the server's name; secrets never pass through here.
import { type Logger, pino } from "pino";

export type Log = Logger;

export const logLevels = ["trace", "debug", "info", "warn", "error", "fatal", "silent"] as const;
export type LogLevel = (typeof logLevels)[number];

/** Members that hold credentials wherever they stand in a logged object. */
const secretPaths = [
  "apiKey",
  "seed",
  "token",
  "envdAccessToken",
  "trafficAccessToken",
  "headers.authorization",
  'headers["x-api-key"]',
  'headers["x-access-token"]',
];

export function openLog(server: string, level: LogLevel): Log {
  return pino(
    {
      level,
      base: { server, pid: process.pid },
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      redact: { paths: secretPaths.flatMap((path) => [path, path.startsWith("headers") ? path : `*.${path}`]), censor: "[secret]" },
    },
    // Synchronous: a line written just before a crash is the one that is wanted.
    pino.destination({ fd: 2, sync: true }),
  );
}
