// The routes of a lone console, in a server that never listens: it gets connections from the server that it belongs to.
import type { Duplex } from "node:stream";
import type { ConsoleKind } from "@svc/contract/console.ts";
import { loadApiKey } from "../api-key.ts";
import type { Log } from "../log.ts";
import { type Metrics, openMetrics } from "../metrics.ts";
import { serve } from "../serve.ts";
import { openConsole } from "./open-console.ts";
import type { Ring, Series } from "./ring.ts";
import type { ConsoleSettings } from "./settings.ts";

export type LoneConsoleOptions = {
  readonly kind: ConsoleKind;
  readonly title: string;
  readonly version: string;
  readonly settings: ConsoleSettings;
  /** The setting of the server's own URL among those of the console: the page shows this server, wherever the setting points. */
  readonly own: "indexer_url" | "store_url";
  /** The server's own key and where it is set; without one, the deployment's API key signs in. */
  readonly key: { readonly secret: string; readonly source: string } | undefined;
  readonly series: readonly Series[];
  /** Updates the metrics before the ring reads them. */
  readonly collect: () => unknown;
  readonly home: string;
  readonly log: Log;
  readonly metrics: Metrics;
};

export type LoneApp = { take(connection: Duplex): void; close(): Promise<void> };

type LoneAppOptions = LoneConsoleOptions & { readonly ring: Ring; readonly url: string };

/** @throws SETTING_INVALID where no key can be read. */
export async function openLoneApp({ url, own, key, ...options }: LoneAppOptions): Promise<LoneApp> {
  const { secret, source } = key ?? loadApiKey({ home: options.home, env: process.env });
  // The sign-in page shows the source to everybody, who need not learn where the home is.
  const keySource = source.startsWith(options.home) ? `$SVC_HOME${source.slice(options.home.length)}` : source;
  const webConsole = openConsole({
    ...options,
    settings: { ...options.settings, [own]: url },
    apiKey: secret,
    keySource,
    domains: [],
    operations: {},
  });
  const app = serve({
    operations: {},
    handlers: {},
    apiKey: secret,
    log: options.log,
    // The server measures its own requests; those of its page are not of its API.
    metrics: openMetrics(),
    servesMetrics: false,
    raw: (scope) => webConsole.routes(scope),
  });
  // The browser's next request on this connection may be for another page of the server, which is not here.
  app.server.prependListener("request", (_request, response) => response.setHeader("connection", "close"));
  await app.ready();
  webConsole.start(app, url, Number(new URL(url).port || 80));
  return {
    take: (connection) => void app.server.emit("connection", connection),
    async close() {
      webConsole.close();
      await app.close();
    },
  };
}
