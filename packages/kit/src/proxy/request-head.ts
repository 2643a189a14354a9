// Reads a request's head strictly: whatever two parsers could read in two ways is refused.
import { contentLength, HeadLines, INCOMPLETE, REFUSED } from "./head-lines.ts";
import { byteClass, HeaderNames, TOKEN } from "./header-names.ts";

/** Names that framing and hops are decided by; an owner of the proxy adds its own behind them. */
export const hopNames = [
  "host",
  "content-length",
  "transfer-encoding",
  "connection",
  "keep-alive",
  "proxy-connection",
  "te",
  "upgrade",
  "expect",
  "http2-settings",
] as const;

export const HOST = 1;
export const CONTENT_LENGTH = 2;
export const TRANSFER_ENCODING = 3;
export const CONNECTION = 4;
export const KEEP_ALIVE = 5;
export const PROXY_CONNECTION = 6;
export const TE = 7;
export const UPGRADE = 8;
export const EXPECT = 9;
export const HTTP2_SETTINGS = 10;

/** `bodyBytes` of a request whose body is chunked. */
export const CHUNKED = -1;

const SPACE = 32;
const SLASH = 47;
const maxMethodBytes = 32;

/** One request's head; filled by `parse` and valid until the next call. */
export class RequestHead extends HeadLines {
  methodEnd = 0;
  targetStart = 0;
  targetEnd = 0;
  /** Where the header lines begin. */
  linesStart = 0;
  isHttp10 = false;
  isHead = false;
  /** Length of the body, 0 for none, or CHUNKED. */
  bodyBytes = 0;

  constructor(ownNames: readonly string[], maxLines: number) {
    super(new HeaderNames([...hopNames, ...ownNames]), maxLines);
  }

  get method(): string {
    return this.text.slice(this.start, this.methodEnd);
  }

  /** The target in origin form (or `*`). */
  get target(): string {
    return this.originForm ?? this.text.slice(this.targetStart, this.targetEnd);
  }

  /** Set when the target came in absolute form and must be replaced by this. */
  originForm: string | undefined;

  /** Where the request line begins: an empty line before it is tolerated (RFC 9112, 2.2). */
  start = 0;

  /** Returns where the body begins in `text`, INCOMPLETE, or REFUSED with `problem` set. */
  parse(text: string): number {
    let at = 0;
    if (text.charCodeAt(0) === 13) {
      if (text.length < 2) return INCOMPLETE;
      if (text.charCodeAt(1) !== 10) return this.refuse("a carriage return stands without a line feed");
      at = 2;
    }
    this.start = at;
    const length = text.length;
    let code = 0;
    while (at < length && ((byteClass[(code = text.charCodeAt(at))] as number) & TOKEN) !== 0) at++;
    if (at - this.start > maxMethodBytes) return this.refuse("the method is too long");
    if (at >= length) return INCOMPLETE;
    if (code !== SPACE || at === this.start) return this.refuse("the request line does not begin with a method and one space");
    this.methodEnd = at;
    const target = ++at;
    while (at < length && (code = text.charCodeAt(at)) > SPACE && code !== 0x7f) at++;
    if (at >= length) return INCOMPLETE;
    if (code !== SPACE || at === target) return this.refuse("the request line has no target, or a control character in it");
    this.targetStart = target;
    this.targetEnd = at;
    at++;
    if (length < at + 10) return "HTTP/1.1\r\n".startsWith(text.slice(at)) || "HTTP/1.0\r\n".startsWith(text.slice(at)) ? INCOMPLETE : this.#badVersion();
    if (!text.startsWith("HTTP/1.", at) || text.charCodeAt(at + 8) !== 13 || text.charCodeAt(at + 9) !== 10) return this.#badVersion();
    const minor = text.charCodeAt(at + 7);
    if (minor !== 0x31 && minor !== 0x30) return this.#badVersion();
    this.originForm = undefined;
    this.isHttp10 = minor === 0x30;
    this.isHead = this.methodEnd - this.start === 4 && text.startsWith("HEAD", this.start);
    this.linesStart = at + 10;
    const end = this.scan(text, at + 10);
    return end > 0 ? this.#check(end) : end;
  }

  #badVersion(): typeof REFUSED {
    return this.refuse("the request line does not end with HTTP/1.1 or HTTP/1.0 and CRLF");
  }

  #check(end: number): number {
    if (this.text.charCodeAt(this.targetStart) !== SLASH && !this.#otherForm()) return REFUSED;
    const hostLine = this.first[HOST] as number;
    if (this.repeated[HOST] !== 0) return this.refuse("Host was sent more than once");
    if (hostLine === 0 && !this.isHttp10) return this.refuse("Host is missing");
    if (hostLine !== 0 && !plainHost(this.text, this.valueStart[hostLine - 1] as number, this.valueEnd[hostLine - 1] as number))
      return this.refuse("Host is not a host name with an optional port");
    const lengthLine = this.first[CONTENT_LENGTH] as number;
    const codingLine = this.first[TRANSFER_ENCODING] as number;
    this.bodyBytes = 0;
    if (lengthLine !== 0) {
      if (codingLine !== 0) return this.refuse("Content-Length and Transfer-Encoding were both sent");
      if (this.repeated[CONTENT_LENGTH] !== 0) return this.refuse("Content-Length was sent more than once");
      const bytes = contentLength(this.text, this.valueStart[lengthLine - 1] as number, this.valueEnd[lengthLine - 1] as number);
      if (bytes < 0) return this.refuse("Content-Length is not a decimal number");
      this.bodyBytes = bytes;
    } else if (codingLine !== 0) {
      if (this.isHttp10) return this.refuse("Transfer-Encoding does not exist in HTTP/1.0");
      if (this.repeated[TRANSFER_ENCODING] !== 0 || this.value(TRANSFER_ENCODING)?.toLowerCase() !== "chunked")
        return this.refuse("Transfer-Encoding is not exactly chunked");
      this.bodyBytes = CHUNKED;
    }
    return end;
  }

  /** `*` for OPTIONS, and absolute form whose authority repeats Host: no two parties may see different hosts. */
  #otherForm(): boolean {
    const target = this.text.slice(this.targetStart, this.targetEnd);
    if (target === "*" && this.method === "OPTIONS") return true;
    const absolute = /^https?:\/\/([^/?#]+)([/?].*)?$/i.exec(target);
    if (absolute === null || this.method === "CONNECT") {
      this.refuse(`the request target ${this.method === "CONNECT" ? "of CONNECT is not served here" : "does not begin with /"}`);
      return false;
    }
    if (absolute[1]?.toLowerCase() !== this.value(HOST)?.toLowerCase()) {
      this.refuse("the request target and Host name different hosts");
      return false;
    }
    const path = absolute[2] ?? "/";
    this.originForm = path.startsWith("/") ? path : `/${path}`;
    return true;
  }

  /** Whether the client wants the connection kept; HTTP/1.0 never does here. */
  get keepsAlive(): boolean {
    return !this.isHttp10 && !(this.first[CONNECTION] !== 0 && this.lists(CONNECTION, "close"));
  }

  /** Whether this is a well-formed wish for another protocol; h2c is none that a proxy may pass on. */
  get upgrades(): boolean {
    return (
      this.first[UPGRADE] !== 0 &&
      !this.isHttp10 &&
      this.bodyBytes === 0 &&
      this.lists(CONNECTION, "upgrade") &&
      !this.tokens(UPGRADE).some((token) => token.startsWith("h2"))
    );
  }
}

/** No byte that could make one parser read another host than the next one. */
function plainHost(text: string, start: number, end: number): boolean {
  for (let at = start; at < end; at++) {
    const code = text.charCodeAt(at);
    const plain =
      (code >= 97 && code <= 122) ||
      (code >= 48 && code <= 58) ||
      (code >= 65 && code <= 91) ||
      code === 93 ||
      code === 45 ||
      code === 46 ||
      code === 95 ||
      code === 126 ||
      code === 37;
    if (!plain) return false;
  }
  return true;
}
