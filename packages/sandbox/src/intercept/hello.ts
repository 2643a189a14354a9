// Reads the server name and the protocols from the first message of a TLS connection, the ClientHello, without answering it.

export type Hello = { readonly serverName: string | undefined; readonly protocols: readonly string[] };

/** Records of the handshake, and the message of the ClientHello in them. */
const HANDSHAKE = 22;
const CLIENT_HELLO = 1;
const SERVER_NAME = 0;
const ALPN = 16;
const HOST_NAME = 0;
const RECORD_HEADER_BYTES = 5;
/** A ClientHello with large key shares and many extensions stays below this. */
export const MAX_HELLO_BYTES = 64 * 1024;

const NAME = /^[a-z0-9_](?:[a-z0-9_.-]{0,251}[a-z0-9_])?$/;

/** Returns `more` while the message is incomplete, and `other` for what is not TLS. */
export function readHello(bytes: Buffer): Hello | "more" | "other" {
  const message: Buffer[] = [];
  let length = 0;
  for (let at = 0; ; ) {
    if (bytes.length > at && bytes[at] !== HANDSHAKE) return "other";
    if (bytes.length > at + 1 && bytes[at + 1] !== 3) return "other";
    if (bytes.length < at + RECORD_HEADER_BYTES) return "more";
    const recordBytes = bytes.readUInt16BE(at + 3);
    const fragment = bytes.subarray(at + RECORD_HEADER_BYTES, at + RECORD_HEADER_BYTES + recordBytes);
    message.push(fragment);
    length += fragment.length;
    const joined = message.length === 1 ? fragment : Buffer.concat(message);
    if (length >= 1 && joined[0] !== CLIENT_HELLO) return "other";
    if (length >= 4) {
      const wanted = 4 + joined.readUIntBE(1, 3);
      if (wanted > MAX_HELLO_BYTES) return "other";
      if (length >= wanted) return parse(joined.subarray(4, wanted)) ?? "other";
    }
    if (fragment.length < recordBytes) return "more";
    at += RECORD_HEADER_BYTES + recordBytes;
  }
}

function parse(body: Buffer): Hello | undefined {
  const reader = new Reader(body);
  reader.skip(2 + 32); // the version and the random bytes
  reader.take(1); // the session id
  reader.take(2); // the cipher suites
  reader.take(1); // the compression methods
  let serverName: string | undefined;
  const protocols: string[] = [];
  const extensions = reader.left === 0 ? undefined : reader.take(2);
  while (extensions !== undefined && extensions.left > 0) {
    const type = extensions.number(2);
    const content = extensions.take(2);
    if (type === SERVER_NAME) {
      const list = content.take(2);
      if (list.number(1) === HOST_NAME) serverName = list.take(2).text().toLowerCase().replace(/\.$/, "");
    }
    if (type === ALPN) for (const list = content.take(2); list.left > 0; ) protocols.push(list.take(1).text());
    if (extensions.failed || content.failed) return undefined;
  }
  if (reader.failed) return undefined;
  return { serverName: serverName !== undefined && NAME.test(serverName) ? serverName : undefined, protocols };
}

/** Reads numbers and vectors with a length before them; after a read beyond the end it has failed and returns zeros. */
class Reader {
  readonly #bytes: Buffer;
  #at = 0;
  failed = false;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get left(): number {
    return this.failed ? 0 : this.#bytes.length - this.#at;
  }

  skip(count: number): void {
    if (count > this.left) this.failed = true;
    this.#at += count;
  }

  number(size: number): number {
    if (size > this.left) {
      this.failed = true;
      return 0;
    }
    const value = this.#bytes.readUIntBE(this.#at, size);
    this.#at += size;
    return value;
  }

  take(lengthSize: number): Reader {
    const length = this.number(lengthSize);
    const start = this.#at;
    this.skip(length);
    return new Reader(this.failed ? Buffer.alloc(0) : this.#bytes.subarray(start, start + length));
  }

  text(): string {
    return this.#bytes.toString("latin1");
  }
}
