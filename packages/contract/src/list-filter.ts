// What a query of a list matches: one reading of it for nodes, which hold sandboxes and snapshots, and for gateways, which know of others.

export type SandboxFilter = {
  readonly metadata?: string | undefined;
  readonly state?: string | undefined;
  readonly startedAfter?: string | undefined;
  readonly template?: string | undefined;
};

export type Filterable = {
  readonly state: string;
  readonly metadata: Readonly<Record<string, string>>;
  readonly startedAtMs: number;
  readonly templateID: string;
  readonly alias: string | undefined;
};

/** The query is read once, however many are matched. */
export function sandboxMatcher(query: SandboxFilter): (sandbox: Filterable) => boolean {
  const states = query.state?.split(",");
  const pairs = query.metadata === undefined ? [] : metadataPairs(query.metadata);
  const after = query.startedAfter === undefined ? undefined : Date.parse(query.startedAfter);
  return ({ state, metadata, startedAtMs, templateID, alias }) => {
    if (states !== undefined && !states.includes(state)) return false;
    if (!pairs.every((spellings) => spellings.some(([key, value]) => Object.hasOwn(metadata, key) && metadata[key] === value))) return false;
    if (after !== undefined && startedAtMs < after) return false;
    return query.template === undefined || query.template === templateID || query.template === alias;
  };
}

/** `asked`: a name, with or without its tag; `names` bear theirs. */
export function bearsName(names: readonly string[], asked: string): boolean {
  return names.some((taken) => taken === asked || taken.slice(0, taken.indexOf(":")) === asked);
}

/** Each pair of the filter in both spellings that clients use: encoded once as a query string, or each part once before that. */
function metadataPairs(filter: string): [key: string, value: string][][] {
  return [...new URLSearchParams(filter)].map((pair) => {
    const [key, value] = pair.map(decoded);
    return key === undefined || value === undefined ? [pair] : [pair, [key, value]];
  });
}

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}
