// Decides which paths on envd's port are closed to the outside, in any spelling, and which one needs no header.

/** Calls that only the node may make; envd checks them as well. */
const internalRoutes: ReadonlySet<string> = new Set(["init", "relay", "freeze", "unfreeze", "collapse", "fsfreeze", "fsthaw"]);

const firstLetters: ReadonlySet<number> = new Set([...internalRoutes].map((route) => route.charCodeAt(0)));
const longestRoute = 1 + Math.max(...[...internalRoutes].map((route) => route.length));

/** A server may decode a path once, or by mistake twice; envd serves no path that is still encoded after this many rounds. */
const decodeRounds = 3;

/** Says whether any reading of `target` (percent-encoding, empty and dot segments, case, parameters) names an internal route. */
export function namesInternalRoute(target: string): boolean {
  if (isPlain(target)) return firstLetters.has(target.charCodeAt(1) | 0x20) && internalRoutes.has(firstSegment(target));
  let path = target;
  if (namesOne(path)) return true;
  for (let round = 0; round < decodeRounds && path.includes("%"); round++) {
    path = path.replace(/%([0-9a-fA-F]{2})/g, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
    if (namesOne(path)) return true;
  }
  return false;
}

/** Fast path for nearly all requests: nothing in the path can change its meaning. */
function isPlain(target: string): boolean {
  for (let at = 0; at < target.length; at++) {
    const code = target.charCodeAt(at);
    if (code === 0x3f || code === 0x23) return true;
    if (code === 0x25 || code === 0x5c || code === 0x3b) return false;
    if (code === 0x2f && at + 1 < target.length) {
      const next = target.charCodeAt(at + 1);
      if (next === 0x2f || next === 0x2e) return false;
    }
  }
  return true;
}

function firstSegment(target: string): string {
  let end = 1;
  while (end < target.length && !isDelimiter(target.charCodeAt(end))) end++;
  return end <= longestRoute ? target.slice(1, end).toLowerCase() : "";
}

function isDelimiter(code: number): boolean {
  return code === 0x2f || code === 0x3f || code === 0x23;
}

function namesOne(target: string): boolean {
  const path = target.split(/[?#]/, 1)[0] as string;
  const segments: string[] = [];
  for (const part of path.split(/[/\\]/)) {
    // Some servers drop parameters and white space after a name.
    const segment = part.split(/[;\s\0]/, 1)[0]?.toLowerCase() ?? "";
    if (segment === "..") segments.pop();
    else if (segment !== "" && segment !== ".") segments.push(segment);
  }
  return segments[0] !== undefined && internalRoutes.has(segments[0]);
}

/**
 * Returns the port of `/forward?port=N`, which leads to envd's relay for clients with the sandbox's token: NaN if N is invalid, undefined for
 * any other path.
 */
export function forwardedPort(target: string): number | undefined {
  if (target !== "/forward" && !target.startsWith("/forward?")) return undefined;
  const text = queryOf(target).get("port") ?? "";
  const port = Number(text);
  return /^\d{1,5}$/.test(text) && port >= 1 && port <= 65_535 ? port : Number.NaN;
}

/** Returns the query of a target, without its question mark. */
export function queryOf(target: string): URLSearchParams {
  const mark = target.indexOf("?");
  return new URLSearchParams(mark < 0 ? "" : target.slice(mark + 1));
}

/** Says whether this is envd's file endpoint with a signature in its query, which envd checks itself. */
export function isSignedFile(target: string): boolean {
  return target.startsWith("/files?") && queryOf(target).has("signature");
}
