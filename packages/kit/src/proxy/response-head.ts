// Reads an upstream's response head strictly and says how its body is framed.
import { contentLength, HeadLines, INCOMPLETE } from "./head-lines.ts";
import { HeaderNames } from "./header-names.ts";

const responseNames = ["content-length", "transfer-encoding", "connection", "keep-alive", "proxy-connection", "upgrade"] as const;
const LENGTH = 1;
const CODING = 2;
const CONNECTION = 3;
const KEEP_ALIVE = 4;
const PROXY_CONNECTION = 5;
const UPGRADE = 6;

/** `bodyBytes` of a response that is chunked, or that ends with its connection. */
export const CHUNKED = -1;
export const UNTIL_CLOSE = -2;

/** One response's head; filled by `parse` and valid until the next call. */
export class ResponseHead extends HeadLines {
  status = 0;
  isHttp10 = false;
  bodyBytes = 0;
  #firstLineEnd = 0;
  /** Whether the upstream keeps its connection after this response. */
  keepsAlive = false;

  constructor(maxLines: number) {
    super(new HeaderNames(responseNames), maxLines);
  }

  /** `forHead`: the response to HEAD has no body. Returns where the body begins, INCOMPLETE, or REFUSED. */
  parse(text: string, forHead: boolean): number {
    const length = text.length;
    if (length < 12) return "HTTP/1.".startsWith(text.slice(0, 7)) ? INCOMPLETE : this.refuse("it does not begin with HTTP/1.x");
    const minor = text.charCodeAt(7);
    if (!text.startsWith("HTTP/1.") || (minor !== 0x31 && minor !== 0x30) || text.charCodeAt(8) !== 32) return this.refuse("it does not begin with HTTP/1.x");
    this.isHttp10 = minor === 0x30;
    const status = contentLength(text, 9, 12);
    if (status < 100) return this.refuse("its status is not three digits");
    this.status = status;
    let at = 12;
    let code = 0;
    while (at < length && ((code = text.charCodeAt(at)) >= 32 || code === 9) && code !== 0x7f) at++;
    if (at >= length) return INCOMPLETE;
    if (code !== 13 || (at > 12 && text.charCodeAt(12) !== 32)) return this.refuse("its status line is malformed");
    if (at + 1 >= length) return INCOMPLETE;
    if (text.charCodeAt(at + 1) !== 10) return this.refuse("a carriage return stands without a line feed");
    this.#firstLineEnd = at;
    const end = this.scan(text, at + 2);
    return end > 0 ? this.#check(end, forHead) : end;
  }

  #check(end: number, forHead: boolean): number {
    const lengthLine = this.first[LENGTH] as number;
    const codingLine = this.first[CODING] as number;
    this.bodyBytes = UNTIL_CLOSE;
    if (lengthLine !== 0) {
      if (codingLine !== 0) return this.refuse("it has both Content-Length and Transfer-Encoding");
      if (this.repeated[LENGTH] !== 0) return this.refuse("it has Content-Length more than once");
      this.bodyBytes = contentLength(this.text, this.valueStart[lengthLine - 1] as number, this.valueEnd[lengthLine - 1] as number);
      if (this.bodyBytes < 0) return this.refuse("its Content-Length is not a decimal number");
    } else if (codingLine !== 0) {
      if (this.isHttp10 || this.repeated[CODING] !== 0 || this.value(CODING)?.toLowerCase() !== "chunked")
        return this.refuse("its Transfer-Encoding is not exactly chunked");
      this.bodyBytes = CHUNKED;
    }
    if (forHead || this.status < 200 || this.status === 204 || this.status === 304) this.bodyBytes = 0;
    const connection = this.first[CONNECTION] !== 0;
    this.keepsAlive =
      this.bodyBytes !== UNTIL_CLOSE && (this.isHttp10 ? connection && this.lists(CONNECTION, "keep-alive") : !(connection && this.lists(CONNECTION, "close")));
    return end;
  }

  /** Whether the bytes may go to a client that keeps its connection, just as they came. */
  get passesVerbatim(): boolean {
    const { first } = this;
    return !this.isHttp10 && first[CONNECTION] === 0 && first[KEEP_ALIVE] === 0 && first[PROXY_CONNECTION] === 0 && first[UPGRADE] === 0;
  }

  /** The head as the client gets it: this hop's own headers, no hop headers of the upstream's. */
  rewrite(keepAlive: boolean): string {
    const { text, ids, lineStart } = this;
    const switching = this.status === 101;
    let out = `HTTP/1.1${text.slice(8, this.#firstLineEnd)}\r\n`;
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
