// Reads the host of an HTTP/1.1 request from its first bytes, without answering it.

const MAX_HEAD_BYTES = 16 * 1024;
const REQUEST_LINE = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,32} \S/;
const NAME = /^[a-z0-9_](?:[a-z0-9_.-]{0,251}[a-z0-9_])?$/;

/** Returns `more` while the head is incomplete; undefined for what is not HTTP, or names no host, or several. */
export function readHost(bytes: Buffer): string | "more" | undefined {
  const text = bytes.toString("latin1", 0, MAX_HEAD_BYTES);
  const end = text.indexOf("\r\n\r\n");
  if (!REQUEST_LINE.test(text) && text.length >= 34) return undefined;
  if (end < 0) return bytes.length >= MAX_HEAD_BYTES ? undefined : "more";
  if (!REQUEST_LINE.test(text)) return undefined;
  const hosts = text
    .slice(0, end)
    .split("\r\n")
    .slice(1)
    .filter((line) => /^host[ \t]*:/i.test(line));
  const [line = "", ...more] = hosts;
  if (more.length > 0) return undefined;
  const name = line
    .slice(line.indexOf(":") + 1)
    .trim()
    .toLowerCase()
    .replace(/:\d+$/, "")
    .replace(/\.$/, "");
  return NAME.test(name) ? name : undefined;
}
