// The page that a browser shows at a server's URL: what the server is and what to do next.

export type PageOptions = {
  /** The program's name, such as "svc node". */
  readonly title: string;
  readonly version: string;
  /** One paragraph of text. */
  readonly about: string;
  /** Command lines, each with what it does. */
  readonly next: readonly (readonly [command: string, does: string])[];
  /** Paths of guides in the source tree. */
  readonly guides: readonly string[];
};

/** A row of the API's table: `GET /health`, and one sentence. */
export type ApiRow = readonly [route: string, does: string];

/** `access` says which key the calls need; `api` lists the routes of a server that has no page for its API. */
export type HomePage = PageOptions & {
  readonly access: string;
  readonly links: readonly (readonly [path: string, title: string])[];
  readonly api?: readonly ApiRow[];
};

const startedAt = new Date().toISOString();
/** Every server serves these. */
export const ownLinks = [
  ["/health", "Health"],
  ["/metrics", "Metrics for Prometheus"],
] as const;
export const PAGE_TYPE = "text/html; charset=utf-8";

export function homePage({ title, version, about, next, guides, access, links, api = [] }: HomePage): string {
  return page(
    title,
    `<p>${escaped(about)}</p>
<p>It runs, version ${escaped(version)}, since ${startedAt}. ${escaped(access)}</p>
<h2>Next</h2>
<table>${rows(next)}</table>${api.length === 0 ? "" : `\n<h2 id="api">The API</h2>\n<table>${rows(api)}</table>`}
<h2>Read on</h2>
<ul>
${links.map(([path, text]) => `<li><a href="${escaped(path)}">${escaped(text)}</a></li>`).join("\n")}
${guides.map((file) => `<li>in the tree: <code>${escaped(file)}</code></li>`).join("\n")}
</ul>`,
  );
}

const rows = (table: readonly (readonly [string, string])[]) =>
  table.map(([code, does]) => `<tr><td><code>${escaped(code)}</code></td><td>${escaped(does)}</td></tr>`).join("\n");

export function page(title: string, body: string): string {
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>${escaped(title)}</title>
<style>
body { max-width: 50rem; margin: 2rem auto; padding: 0 1rem; font: 1rem/1.5 system-ui, sans-serif; color-scheme: light dark }
pre, code { font: 0.9em/1.5 ui-monospace, monospace } pre { overflow-x: auto; padding: 0.6rem; background: #8882 }
table { border-collapse: collapse } td, th { text-align: left; vertical-align: top; padding: 0.15rem 0.8rem 0.15rem 0 } h2 { margin-top: 2rem }
</style></head><body>
<h1>${escaped(title)}</h1>
${body}
</body></html>
`;
}

export function escaped(text: string): string {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;");
}
