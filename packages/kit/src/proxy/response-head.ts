// Parses an upstream's response head strictly and determines how its body is framed.
import { decimal, HeadLines, INCOMPLETE } from "./head-lines.ts";
import { byteClass, HeaderNames, VALUE } from "./header-names.ts";

const responseNames = ["content-length", "transfer-encoding", "connection", "keep-alive", "proxy-connection", "upgrade"] as const;
const LENGTH = 1;
const CODING = 2;
const CONNECTION = 3;
const KEEP_ALIVE = 4;
const PROXY_CONNECTION = 5;
const UPGRADE = 6;

/** The beginning of a status line, and the offset in it where 0 is also valid. */
const version = Buffer.from("HTTP/1.1 ");
const minorOffset = 7;

/** `bodyBytes` of a response that is chunked, or that ends with its connection. */
export const CHUNKED = -1;
export const UNTIL_CLOSE = -2;

/** One response's head; filled by `parse` and valid until the next call. */
export class ResponseHead extends HeadLines {
  status = 0;
  isHttp10 = false;
  bodyBytes = 0;
  #firstLineEnd = 0;
  /** True if the upstream keeps its connection after this response. */
  keepsAlive = false;
  /** True if the bytes may pass unchanged to a client that keeps its connection. */
  passesVerbatim = false;

  constructor(maxLines: number) {
    super(new HeaderNames(responseNames), maxLines);
  }

  /** Parses the head at [start, end) of `bytes`; `forHead` marks a response to HEAD. Returns the offset of its body, INCOMPLETE, or REFUSED. */
  parse(bytes: Buffer, start: number, end: number, forHead: boolean): number {
    this.open(bytes, start);
    let at = start;
    for (let offset = 0; offset < version.length; offset++, at++) {
      if (at >= end) return INCOMPLETE;
      const code = bytes[at] as number;
      if (code !== version[offset] && (offset !== minorOffset || code !== 0x30)) return this.refuse("it does not begin with HTTP/1.x");
    }
    if (end < at + 4) return INCOMPLETE;
    this.isHttp10 = bytes[start + minorOffset] === 0x30;
    this.status = decimal(bytes, at, at + 3);
    if (this.status < 100) return this.refuse("its status is not three digits");
    at += 3;
    let code = bytes[at] as number;
    if (code !== 32 && code !== 13) return this.refuse("its status line is malformed");
    while (at < end && ((byteClass[(code = bytes[at] as number)] as number) & VALUE) !== 0) at++;
    if (at + 1 >= end) return INCOMPLETE;
    if (code !== 13 || bytes[at + 1] !== 10) return this.refuse("its status line is malformed");
    this.#firstLineEnd = at - start;
    const bodyAt = this.scan(at + 2, end);
    return bodyAt > 0 ? this.#check(bodyAt, forHead) : bodyAt;
  }

  #check(end: number, forHead: boolean): number {
    const lengthLine = this.first[LENGTH] as number;
    const codingLine = this.first[CODING] as number;
    this.bodyBytes = UNTIL_CLOSE;
    if (lengthLine !== 0) {
      if (codingLine !== 0) return this.refuse("it has both Content-Length and Transfer-Encoding");
      if (this.repeated[LENGTH] !== 0) return this.refuse("it has Content-Length more than once");
      this.bodyBytes = this.decimal(LENGTH);
      if (this.bodyBytes < 0) return this.refuse("its Content-Length is not a decimal number");
    } else if (codingLine !== 0) {
      if (this.isHttp10 || !this.isOnly(CODING, "chunked")) return this.refuse("its Transfer-Encoding is not exactly chunked");
      this.bodyBytes = CHUNKED;
    }
    if (forHead || this.status < 200 || this.status === 204 || this.status === 304) this.bodyBytes = 0;
    const saysKeep = this.isOnly(CONNECTION, "keep-alive");
    const saysClose = !saysKeep && this.lists(CONNECTION, "close");
    this.keepsAlive = this.bodyBytes !== UNTIL_CLOSE && (this.isHttp10 ? saysKeep : !saysClose);
    // An explicit keep-alive is true of this hop too.
    this.passesVerbatim =
      !this.isHttp10 &&
      (saysKeep || this.first[CONNECTION] === 0) &&
      this.first[KEEP_ALIVE] === 0 &&
      this.first[PROXY_CONNECTION] === 0 &&
      this.first[UPGRADE] === 0;
    return end;
  }

  /** Returns the head as the client gets it: with this hop's own headers, without the upstream's hop-by-hop headers. */
  rewrite(keepAlive: boolean, addedLines = ""): string {
    const { text, ids, lineStart } = this;
    const switching = this.status === 101;
    let out = `HTTP/1.1${text.slice(8, this.#firstLineEnd)}\r\n${addedLines}`;
    for (let line = 0; line < this.count; line++) {
      const id = ids[line] as number;
      if (id === UPGRADE ? !switching && this.status !== 426 : id >= CONNECTION) continue;
      out += text.slice(lineStart[line], lineStart[line + 1]);
    }
    if (switching) out += "Connection: Upgrade\r\n";
    else if (!keepAlive) out += "Connection: close\r\n";
    return `${out}\r\n`;
  }
}
