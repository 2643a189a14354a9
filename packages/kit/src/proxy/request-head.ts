// Parses a request's head strictly: anything that two parsers might read differently is refused.
import { HeadLines, INCOMPLETE, REFUSED } from "./head-lines.ts";
import { byteClass, HeaderNames, TOKEN } from "./header-names.ts";

/** Names on which framing and hop-by-hop handling depend; an owner of the proxy appends its own. */
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

const CR = 13;
const LF = 10;
const SPACE = 32;
const SLASH = 47;
const HYPHEN = 45;
/** The first byte of a client that speaks TLS. */
const TLS_HANDSHAKE = 0x16;
/** The end of the request line, and the offset in it where 0 is also valid. */
const version = Buffer.from("HTTP/1.1\r\n");
const minorOffset = 7;
const headMethod = Buffer.from("HEAD");
const maxMethodBytes = 32;

/** Letters, digits, and the characters of IPv6 literals, escapes and ports. */
const hostBytes = Uint8Array.from({ length: 256 }, (_, byte) => (/[A-Za-z0-9.:_~%[\]-]/.test(String.fromCharCode(byte)) ? 1 : 0));

/** One request's head; filled by `parse` and valid until the next call. */
export class RequestHead extends HeadLines {
  methodEnd = 0;
  targetStart = 0;
  targetEnd = 0;
  isHttp10 = false;
  isHead = false;
  /** Length of the body, 0 for none, or CHUNKED. */
  bodyBytes = 0;
  /** True if Host has a hyphen, as every host name of a sandbox does. */
  hostHasHyphen = false;
  #first = 0;

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

  /** Set if the target came in absolute form, which this replaces. */
  originForm: string | undefined;

  /** Offset of the request line: an empty line before it is tolerated (RFC 9112, 2.2). */
  start = 0;

  /** Parses the head at [start, end) of `bytes`; returns the offset of its body, INCOMPLETE, or REFUSED with `problem` set. */
  parse(bytes: Buffer, start: number, end: number): number {
    this.open(bytes, start);
    let at = start;
    if (bytes[at] === CR) {
      if (end < start + 2) return INCOMPLETE;
      if (bytes[start + 1] !== LF) return this.refuse("a carriage return stands without a line feed");
      at = start + 2;
    }
    this.start = at - start;
    const method = at;
    let code = 0;
    while (at < end && ((byteClass[(code = bytes[at] as number)] as number) & TOKEN) !== 0) at++;
    if (at - method > maxMethodBytes) return this.refuse("the method is too long");
    if (at >= end) return INCOMPLETE;
    if (code === TLS_HANDSHAKE && at === method) return this.refuse("this port speaks plain HTTP, and got TLS: begin the URL with http://");
    if (code !== SPACE || at === method) return this.refuse("the request line does not begin with a method and one space");
    this.methodEnd = at - start;
    const target = ++at;
    while (at < end && (code = bytes[at] as number) > SPACE && code !== 0x7f) at++;
    if (at >= end) return INCOMPLETE;
    if (code !== SPACE || at === target) return this.refuse("the request line has no target, or a control character in it");
    this.targetStart = target - start;
    this.targetEnd = at - start;
    at++;
    for (let offset = 0; offset < version.length; offset++, at++) {
      if (at >= end) return INCOMPLETE;
      code = bytes[at] as number;
      if (code !== version[offset] && (offset !== minorOffset || code !== 0x30))
        return this.refuse("the request line does not end with HTTP/1.1 or HTTP/1.0 and CRLF");
    }
    this.originForm = undefined;
    this.isHttp10 = bytes[at - 3] === 0x30;
    this.#first = bytes[method] as number;
    this.isHead = this.methodEnd - this.start === 4 && bytes.compare(headMethod, 0, 4, method, method + 4) === 0;
    const bodyAt = this.scan(at, end);
    return bodyAt > 0 ? this.#check(bodyAt) : bodyAt;
  }

  #check(end: number): number {
    if (this.bytes[this.base + this.targetStart] !== SLASH && !this.#otherForm()) return REFUSED;
    const hostLine = this.first[HOST] as number;
    if (this.repeated[HOST] !== 0) return this.refuse("Host was sent more than once");
    if (hostLine === 0 && !this.isHttp10) return this.refuse("Host is missing");
    this.hostHasHyphen = false;
    if (hostLine !== 0 && !this.#readHost(hostLine - 1)) return this.refuse("Host is not a host name with an optional port");
    const lengthLine = this.first[CONTENT_LENGTH] as number;
    const codingLine = this.first[TRANSFER_ENCODING] as number;
    this.bodyBytes = 0;
    if (lengthLine !== 0) {
      // I10
      if (codingLine !== 0) return this.refuse("Content-Length and Transfer-Encoding were both sent");
      if (this.repeated[CONTENT_LENGTH] !== 0) return this.refuse("Content-Length was sent more than once");
      this.bodyBytes = this.decimal(CONTENT_LENGTH);
      if (this.bodyBytes < 0) return this.refuse("Content-Length is not a decimal number");
    } else if (codingLine !== 0) {
      if (this.isHttp10) return this.refuse("Transfer-Encoding does not exist in HTTP/1.0");
      if (this.repeated[TRANSFER_ENCODING] !== 0 || this.value(TRANSFER_ENCODING)?.toLowerCase() !== "chunked")
        return this.refuse("Transfer-Encoding is not exactly chunked");
      this.bodyBytes = CHUNKED;
    }
    return end;
  }

  /** Accepts `*` for OPTIONS, and an absolute form whose authority repeats Host, so that all parties see the same host. */
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

  /** Says whether the client asks to keep the connection; HTTP/1.0 connections are never kept here. */
  get keepsAlive(): boolean {
    return !this.isHttp10 && (this.first[CONNECTION] === 0 || this.isOnly(CONNECTION, "keep-alive") || !this.lists(CONNECTION, "close"));
  }

  /** Says whether this is a well-formed upgrade request; a proxy must not pass on h2c. */
  get upgrades(): boolean {
    return (
      this.first[UPGRADE] !== 0 &&
      !this.isHttp10 &&
      this.bodyBytes === 0 &&
      this.lists(CONNECTION, "upgrade") &&
      !this.tokens(UPGRADE).some((token) => token.startsWith("h2"))
    );
  }

  /** Says whether the request may be sent twice if a kept connection turns out to be closed (RFC 9110, 9.2.2). */
  get isRepeatable(): boolean {
    return (this.#first === 0x47 && this.methodEnd - this.start === 3) || /^(GET|HEAD|OPTIONS|PUT|DELETE|TRACE)$/.test(this.method);
  }

  /** Says whether Host has no byte by which two parsers might read different hosts. */
  #readHost(line: number): boolean {
    const end = this.base + (this.valueEnd[line] as number);
    for (let at = this.base + (this.valueStart[line] as number); at < end; at++) {
      const code = this.bytes[at] as number;
      if (hostBytes[code] === 0) return false;
      if (code === HYPHEN) this.hostHasHyphen = true;
    }
    return true;
  }
}
