// JSON lines on stderr, one per event, with the server's name. Secrets are never logged.
import { type Logger, pino } from "pino";
import { type LogOutput, openLogOutput } from "./log-output.ts";
import { traceMembers } from "./trace.ts";

export type Log = Logger;

export const logLevels = ["trace", "debug", "info", "warn", "error", "fatal", "silent"] as const;
export type LogLevel = (typeof logLevels)[number];

const STDERR = 2;
/** One output per process, since there is one descriptor. */
let output: LogOutput | undefined;
/** Members that hold credentials, at any depth of a logged object. */
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

/** As openLog, for a command that a person waits for: warnings and errors as sentences. */
export function openSentences(command: string): Log {
  return pino(
    { level: "warn", formatters: { level: (label) => ({ level: label }) } },
    {
      write(line: string) {
        const { msg, err, sandboxID } = JSON.parse(line) as { msg: string; err?: { message?: string }; sandboxID?: string };
        const about = sandboxID === undefined || msg.includes(sandboxID) ? "" : `sandbox ${sandboxID}: `;
        process.stderr.write(`${command}: ${about}${msg}${err?.message === undefined ? "" : `: ${err.message}`}\n`);
      },
    },
  );
}

export function openLog(server: string, level: LogLevel): Log {
  const base = { server, pid: process.pid };
  const lost = (lines: number, why: string): string =>
    `${JSON.stringify({ level: "warn", time: new Date().toISOString(), ...base, lines, msg: `log lines are lost: ${why}` })}\n`;
  return pino(
    {
      level,
      base,
      timestamp: pino.stdTimeFunctions.isoTime,
      mixin: traceMembers,
      formatters: { level: (label) => ({ level: label }) },
      redact: { paths: secretPaths.flatMap((path) => [path, path.startsWith("headers") ? path : `*.${path}`]), censor: "[secret]" },
    },
    (output ??= openLogOutput(STDERR, lost)),
  );
}
