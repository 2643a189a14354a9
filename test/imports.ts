// The table of which package may import which.

/** The packages that each package may import, besides itself. */
const allowed: Readonly<Record<string, readonly string[]>> = {
  contract: [],
  kit: ["contract"],
  sandbox: ["contract", "kit"],
  gateway: ["contract", "kit"],
  transfer: ["contract", "kit"],
  store: ["contract", "kit", "transfer"],
  "store-admin": ["contract", "kit", "store"],
  indexer: ["contract", "kit"],
  router: ["contract", "kit"],
  cli: ["contract"],
  mcp: ["contract", "cli"],
  console: ["contract"],
  harness: ["contract", "kit", "sandbox", "gateway", "transfer", "store", "store-admin", "indexer", "router", "cli", "mcp", "console"],
};

/** The module names that a TypeScript source imports, exports from, or loads by `import()`. */
export function importsOf(source: string): readonly string[] {
  const found = source.matchAll(/^\s*(?:import|export)\b[^"';]*?\bfrom\s*"([^"]+)"|^\s*import\s*"([^"]+)"|\bimport\(\s*"([^"]+)"/gm);
  return [...found].map((match) => match[1] ?? match[2] ?? match[3] ?? "");
}

export function packageOf(file: string): string | undefined {
  return /^packages\/([^/]+)\//.exec(file)?.[1];
}

/** Tests may use the harness; shipped code may not. */
export function mayImport(file: string, target: string): boolean {
  const own = packageOf(file);
  const other = /^@svc\/([^/]+)/.exec(target)?.[1];
  if (own === undefined || other === undefined || own === other) return true;
  const isTest = file.startsWith(`packages/${own}/test/`) || /\.(test|suite|bench)\.ts$/.test(file);
  return isTest || (allowed[own] ?? []).includes(other);
}
