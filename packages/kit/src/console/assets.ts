// The console's page: the files that set-up built from packages/console, read once and compressed there.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { extname, join } from "node:path";
import { escaped } from "../home-page.ts";

export type Asset = { readonly type: string; readonly bytes: Buffer; readonly gzip: Buffer | undefined };

const types: Readonly<Record<string, string>> = {
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".html": "text/html; charset=utf-8",
  ".svg": "image/svg+xml",
};

export class Assets {
  readonly #files = new Map<string, Asset>();

  /** `folder` is what the set-up step `console` made; undefined or missing where set-up did not run. */
  constructor(folder: string | undefined) {
    if (folder === undefined || !existsSync(folder)) return;
    for (const name of readdirSync(folder)) {
      const type = types[extname(name)];
      if (type === undefined) continue;
      const gzip = join(folder, `${name}.gz`);
      this.#files.set(name, { type, bytes: readFileSync(join(folder, name)), gzip: existsSync(gzip) ? readFileSync(gzip) : undefined });
    }
  }

  get isBuilt(): boolean {
    return this.#files.has("index.html");
  }

  find(name: string): Asset | undefined {
    return this.#files.get(name);
  }

  /** The page, with the nonce for the styles that the terminal creates, and where a lone server's key comes from. */
  page(nonce: string, keySource = ""): string {
    return (this.#files.get("index.html")?.bytes.toString() ?? "").replace("NONCE", () => nonce).replace("KEY-SOURCE", () => escaped(keySource));
  }
}
