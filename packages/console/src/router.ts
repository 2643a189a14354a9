// The page's address: a path below /console and a query, both as signals, so that every view can be linked to.
import { computed, signal } from "@preact/signals";

const BASE = "/console";

const address = signal(location.pathname + location.search);
addEventListener("popstate", () => {
  address.value = location.pathname + location.search;
});

/** The segments of the path below /console. */
export const path = computed<readonly string[]>(() => {
  const [pathname = ""] = address.value.split("?");
  return pathname
    .slice(BASE.length)
    .split("/")
    .filter((word) => word !== "")
    .map(decoded);
});
/** An address that a person mistyped must still show a view. */
function decoded(word: string): string {
  try {
    return decodeURIComponent(word);
  } catch {
    return word;
  }
}

export const query = computed(() => new URLSearchParams(address.value.split("?")[1] ?? ""));

/** Builds an address below /console; empty values are left out of the query. */
export function to(words: readonly string[], members: Readonly<Record<string, string>> = {}): string {
  const search = new URLSearchParams(Object.entries(members).filter(([, value]) => value !== ""));
  return `${[BASE, ...words.map(encodeURIComponent)].join("/")}${search.size === 0 ? "" : `?${search}`}`;
}

export function go(target: string): void {
  if (target === address.value) return;
  history.pushState(null, "", target);
  address.value = target;
  document.querySelector("main")?.scrollTo(0, 0);
}

/** Changes members of the query in place, without an entry in the history. */
export function setQuery(members: Readonly<Record<string, string>>): void {
  const merged = { ...Object.fromEntries(query.value), ...members };
  const target = to(path.value, merged);
  history.replaceState(null, "", target);
  address.value = target;
}

/** Makes plain clicks on the console's own links change the view without loading the page. */
export function followLinks(event: MouseEvent): void {
  const link = (event.target as Element | null)?.closest?.("a");
  if (link === null || link === undefined || link.target !== "" || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const { pathname, search, origin } = new URL(link.href);
  if (origin !== location.origin || !(pathname === BASE || pathname.startsWith(`${BASE}/`))) return;
  event.preventDefault();
  go(pathname + search);
}
