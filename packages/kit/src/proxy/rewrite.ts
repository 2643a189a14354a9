// Makes the upstream head from the received one: some lines removed, some added, everything else byte for byte.
import { CONNECTION, HTTP2_SETTINGS, KEEP_ALIVE, PROXY_CONNECTION, type RequestHead, TE, UPGRADE } from "./request-head.ts";

/** The header lines, by name number, that are not sent upstream. */
export type Drops = Uint8Array;

/** Returns the drops for a table of `count` names: hop-by-hop headers and `ids`. */
export function dropsOf(count: number, ids: Iterable<number>): Drops {
  const drops = new Uint8Array(count + 1);
  for (const id of [CONNECTION, KEEP_ALIVE, PROXY_CONNECTION, TE, UPGRADE, HTTP2_SETTINGS]) drops[id] = 1;
  for (const id of ids) drops[id] = 1;
  return drops;
}

export type Rewriting = {
  readonly drops: Drops;
  /** Replaces the request target. */
  readonly target: string | undefined;
  /** Added header lines, each ended by CRLF. */
  readonly added: string;
  /** True if an Upgrade may pass. */
  readonly upgrade: boolean;
};

/** Connection options that name no header of their own. */
const plainOptions = new Set(["close", "keep-alive", "upgrade", "te", "http2-settings"]);

export function rewriteRequest(head: RequestHead, rewriting: Rewriting): string {
  const { drops, added, upgrade } = rewriting;
  const target = rewriting.target ?? head.originForm;
  const { text, ids, lineStart, count } = head;
  const nominated = head.has(CONNECTION) ? nominatedNames(head) : undefined;
  // Text from `from` on is copied in one piece until a line is removed.
  let from = head.start;
  let out = "";
  if (target !== undefined) {
    out = `${text.slice(head.start, head.targetStart)}${target}`;
    from = head.targetEnd;
  }
  for (let line = 0; line < count; line++) {
    const id = ids[line] as number;
    if (drops[id] === 0 && (nominated === undefined || id !== 0 || !nominated.has(text.slice(lineStart[line], head.nameEnd[line]).toLowerCase()))) continue;
    const start = lineStart[line] as number;
    if (start > from) out += text.slice(from, start);
    from = lineStart[line + 1] as number;
  }
  if (head.linesEnd > from) out += text.slice(from, head.linesEnd);
  out += added;
  if (upgrade && head.upgrades) return `${out}Connection: Upgrade\r\nUpgrade: ${head.value(UPGRADE)}\r\n\r\n`;
  return head.isHttp10 ? `${out}Connection: close\r\n\r\n` : `${out}\r\n`;
}

/**
 * Returns the headers that Connection declares hop-by-hop. Names the proxy itself acts on are ignored there: a client must not be able to make
 * the proxy lose a credential or a length.
 */
function nominatedNames(head: RequestHead): Set<string> | undefined {
  if (head.isOnly(CONNECTION, "keep-alive") || head.isOnly(CONNECTION, "close")) return undefined;
  const names = new Set(head.tokens(CONNECTION).filter((name) => !plainOptions.has(name)));
  return names.size === 0 ? undefined : names;
}
