// The console of a server that serves no sandboxes and has an HTTP server of its own: a master or an indexer. Its parts are loaded with the
// first request, so that a server that nobody looks at pays for the ring of samples alone.
import type { Duplex } from "node:stream";
import { CONSOLE_PATH } from "@svc/contract/console.ts";
import type { HttpOptions } from "../http/exchange.ts";
import type { LoneApp, LoneConsoleOptions } from "./lone-app.ts";
import { Ring } from "./ring.ts";

export type LoneConsole = {
  /** For the options of the HTTP server; undefined where the console is off. */
  readonly handsOver: HttpOptions["handsOver"];
  /** Called once the server listens at `url`; prints the console's address. */
  start(url: string): void;
  close(): Promise<void>;
};

export function openLoneConsole(options: LoneConsoleOptions): LoneConsole {
  const { settings, metrics, series, home, title, log } = options;
  if (settings.mode === "off") return { handsOver: undefined, start: () => undefined, close: async () => undefined };
  const values = async () => {
    await options.collect();
    return await metrics.values();
  };
  const ring = new Ring({ values }, series, home);
  let url = "";
  let opening: Promise<LoneApp> | undefined;
  async function take(connection: Duplex): Promise<void> {
    try {
      opening ??= import("./lone-app.ts").then(({ openLoneApp }) => openLoneApp({ ...options, ring, url }));
      (await opening).take(connection);
    } catch (error) {
      opening = undefined;
      log.error({ err: error }, "the console cannot be opened");
      connection.end("HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    }
  }
  return {
    handsOver: { path: CONSOLE_PATH, take: (connection) => void take(connection) },
    start(own) {
      url = own;
      ring.start();
      process.stdout.write(`${title} console at ${own}${CONSOLE_PATH}\n`);
    },
    async close() {
      ring.close();
      await (await opening?.catch(() => undefined))?.close();
    },
  };
}
