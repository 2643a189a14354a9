// Parses the kernel's messages about denied packets: a pcap stream of nflog messages, each with a reason and the packet's first bytes.

/** The link type of nflog messages in a pcap stream. */
const NFLOG_LINK_TYPE = 239;
const PCAP_MAGIC = 0xa1b2c3d4;
const FILE_HEADER_BYTES = 24;
const RECORD_HEADER_BYTES = 16;
const MESSAGE_HEADER_BYTES = 4;
/** Far more than the rules let through; a longer record is not nflog. */
const MAX_RECORD_BYTES = 65_536;

const attributes = { indev: 4, payload: 9, prefix: 10 } as const;
const protocols: Readonly<Record<number, string>> = { 1: "icmp", 6: "tcp", 17: "udp" };

export type Noted = {
  readonly reason: string;
  /** Index of the packet's input interface; 0 if it is unknown. */
  readonly interfaceIndex: number;
  readonly protocol: string;
  readonly source: string;
  readonly address: string;
  readonly port: number | undefined;
};

/**
 * Extracts packets from a pcap stream, however it is cut.
 * @throws if the stream has another format; its writer must then be restarted.
 */
export class NotedStream {
  #rest: Buffer = Buffer.alloc(0);
  #begun = false;
  /** The writer's byte order is the machine's. */
  #little = true;

  *take(chunk: Buffer): Generator<Noted> {
    let rest = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    if (!this.#begun && rest.length >= FILE_HEADER_BYTES) {
      this.#begin(rest);
      rest = rest.subarray(FILE_HEADER_BYTES);
    }
    while (this.#begun && rest.length >= RECORD_HEADER_BYTES) {
      const length = this.#uint32(rest, 8);
      if (length > MAX_RECORD_BYTES) throw new Error(`a record of ${length} bytes`);
      if (rest.length < RECORD_HEADER_BYTES + length) break;
      const noted = this.#message(rest.subarray(RECORD_HEADER_BYTES, RECORD_HEADER_BYTES + length));
      rest = rest.subarray(RECORD_HEADER_BYTES + length);
      if (noted !== undefined) yield noted;
    }
    this.#rest = Buffer.from(rest);
  }

  #begin(header: Buffer): void {
    this.#little = header.readUInt32LE(0) === PCAP_MAGIC;
    if (!this.#little && header.readUInt32BE(0) !== PCAP_MAGIC) throw new Error("no pcap stream");
    const linkType = this.#uint32(header, 20);
    if (linkType !== NFLOG_LINK_TYPE) throw new Error(`a pcap stream of link type ${linkType}`);
    this.#begun = true;
  }

  /** Parses consecutive attributes: length, type (both in the machine's order), value, padding to four bytes. */
  #message(message: Buffer): Noted | undefined {
    let reason = "";
    let interfaceIndex = 0;
    let packet: Buffer | undefined;
    for (let at = MESSAGE_HEADER_BYTES; at + 4 <= message.length; ) {
      const length = this.#uint16(message, at);
      if (length < 4 || at + length > message.length) break;
      const value = message.subarray(at + 4, at + length);
      const type = this.#uint16(message, at + 2) & 0x3fff;
      if (type === attributes.indev && value.length >= 4) interfaceIndex = value.readUInt32BE(0);
      if (type === attributes.payload) packet = value;
      if (type === attributes.prefix) reason = value.toString("latin1").replace(/\0.*$/s, "");
      at += (length + 3) & ~3;
    }
    const read = packet === undefined ? undefined : readPacket(packet);
    return read === undefined ? undefined : { reason, interfaceIndex, ...read };
  }

  #uint16(buffer: Buffer, at: number): number {
    return this.#little ? buffer.readUInt16LE(at) : buffer.readUInt16BE(at);
  }

  #uint32(buffer: Buffer, at: number): number {
    return this.#little ? buffer.readUInt32LE(at) : buffer.readUInt32BE(at);
  }
}

/** Returns source, destination and port from an IPv4 packet's first bytes, or undefined for other packets. IPv6 is dropped earlier. */
export function readPacket(packet: Buffer): Pick<Noted, "protocol" | "source" | "address" | "port"> | undefined {
  const headerBytes = ((packet[0] ?? 0) & 0x0f) * 4;
  if ((packet[0] ?? 0) >> 4 !== 4 || packet.length < 20 || headerBytes < 20) return undefined;
  const number = packet[9] ?? 0;
  const dotted = (at: number): string => packet.subarray(at, at + 4).join(".");
  // In a later fragment the bytes after the header are not ports.
  const first = (packet.readUInt16BE(6) & 0x1fff) === 0;
  const hasPort = (number === 6 || number === 17) && first && packet.length >= headerBytes + 4;
  const port = hasPort ? packet.readUInt16BE(headerBytes + 2) : undefined;
  return { protocol: protocols[number] ?? String(number), source: dotted(12), address: dotted(16), port };
}
