// Operations of E2B's API that svc does not have: an SDK would read a plain 404 as "there is no such object".

/** Each segment is a word, `*` for any one segment, or `**` at the end for any number of segments, including none. */
type Row = { readonly methods: readonly string[]; readonly paths: readonly string[]; readonly what: string; readonly instead: string };

const any: readonly string[] = [];

const rows: readonly Row[] = [
  {
    methods: ["POST"],
    paths: ["/templates", "/templates/*", "/templates/*/builds/*"],
    what: "the first version of template builds, which pushes an image",
    instead: "use POST /v3/templates and POST /v2/templates/{templateID}/builds/{buildID}, as SDKs with Template.build do",
  },
  {
    methods: any,
    paths: ["/access-tokens/**"],
    what: "access tokens, since the header Authorization belongs to applications here",
    instead: "create a named key by POST /api-keys, and send it in X-API-Key",
  },
  {
    methods: any,
    paths: ["/teams/*/**", "/users/**", "/admin/**"],
    what: "metrics of teams, and users",
    instead: "tenants have named keys instead of users (GET /teams, GET /api-keys); GET /metrics has the metrics of all sandboxes",
  },
];

export const pathsNotOffered: readonly string[] = rows.flatMap(({ paths }) => paths);

/** Returns the message for an operation that E2B has and svc does not; undefined for any other. */
export function notOffered(method: string, path: string): string | undefined {
  const segments = path.split("/").slice(1);
  const row = rows.find(
    ({ methods, paths }) => (methods.length === 0 || methods.includes(method)) && paths.some((each) => fits(each.split("/").slice(1), segments)),
  );
  return row === undefined ? undefined : `${method} ${path}: svc does not offer ${row.what}; ${row.instead}. GET /docs lists every operation that svc offers`;
}

function fits(pattern: readonly string[], segments: readonly string[]): boolean {
  const isOpen = pattern.at(-1) === "**";
  const fixed = isOpen ? pattern.slice(0, -1) : pattern;
  if (isOpen ? segments.length < fixed.length : segments.length !== fixed.length) return false;
  return fixed.every((word, at) => word === segments[at] || (word === "*" && segments[at] !== ""));
}
