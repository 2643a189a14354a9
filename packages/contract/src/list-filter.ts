// How list queries match; nodes, which have sandboxes and snapshots, and gateways, which know about them, share this code.

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

/** Parses the query once, for any number of sandboxes. */
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

/** `asked` is a name with or without its tag; `names` include their tags. */
export function bearsName(names: readonly string[], asked: string): boolean {
  return names.some((taken) => taken === asked || taken.slice(0, taken.indexOf(":")) === asked);
}

/** Returns each pair of the filter in both encodings that clients use: only the query string encoded, or each part encoded before that. */
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
