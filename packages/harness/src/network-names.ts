// A DNS server for a test, on loopback: it answers each name as the test specifies, over UDP and TCP.
import { createSocket } from "node:dgram";
import { createServer } from "node:net";

export type Said = { readonly name: string; readonly ttlSeconds?: number } & ({ readonly a: string } | { readonly cname: string } | { readonly aaaa: true });

export type Names = {
  /** A value for `dns.upstreams`. */
  readonly upstream: string;
  /** The answers by name; a name without an entry does not exist. */
  readonly records: Map<string, readonly Said[]>;
  /** Returns the queries since the last call, each with its transport. */
  asked(): string[];
} & AsyncDisposable;

export async function startNames(records: Record<string, readonly Said[]>): Promise<Names> {
  const known = new Map(Object.entries(records));
  let asked: string[] = [];
  const answer = (query: Buffer, transport: "udp" | "tcp"): Buffer => {
    const name = nameOf(query);
    asked.push(`${transport} ${name}`);
    const said = known.get(name);
    // The answer of a name that begins with "long." does not fit into a datagram.
    const truncated = transport === "udp" && name.startsWith("long.");
    return write(query, name, truncated ? [] : typeOf(query, name) === 1 ? (said ?? []) : [], said === undefined ? 3 : 0, truncated);
  };
  const tcp = createServer((socket) => {
    socket.on("error", () => {});
    socket.once("data", (framed) => {
      const message = answer(framed.subarray(2), "tcp");
      const length = Buffer.alloc(2);
      length.writeUInt16BE(message.length);
      socket.end(Buffer.concat([length, message]));
    });
  });
  await new Promise<void>((resolve) => tcp.listen(0, "127.0.0.1", resolve));
  const { port } = tcp.address() as { port: number };
  const udp = createSocket("udp4");
  udp.on("message", (query, from) => udp.send(answer(query, "udp"), from.port, from.address));
  await new Promise<void>((resolve) => udp.bind(port, "127.0.0.1", resolve));
  return {
    upstream: `127.0.0.1:${port}`,
    records: known,
    asked() {
      const was = asked;
      asked = [];
      return was;
    },
    async [Symbol.asyncDispose]() {
      udp.close();
      tcp.close();
    },
  };
}

function nameOf(query: Buffer): string {
  const labels: string[] = [];
  for (let at = 12; (query[at] ?? 0) > 0; at += 1 + (query[at] ?? 0)) labels.push(query.toString("latin1", at + 1, at + 1 + (query[at] ?? 0)));
  return labels.join(".").toLowerCase();
}

const typeOf = (query: Buffer, name: string): number => query.readUInt16BE(12 + name.length + 2);

export function writtenName(name: string): Buffer {
  return Buffer.concat([...name.split(".").map((label) => Buffer.from(`${String.fromCharCode(label.length)}${label}`, "latin1")), Buffer.from([0])]);
}

function write(query: Buffer, name: string, said: readonly Said[], rcode: number, truncated: boolean): Buffer {
  const header = Buffer.alloc(12);
  query.copy(header, 0, 0, 2);
  header[2] = 0x81 | (truncated ? 2 : 0);
  header[3] = 0x80 | rcode;
  header.writeUInt16BE(1, 4);
  header.writeUInt16BE(said.length, 6);
  const answers = said.map((record) => {
    const data =
      "a" in record
        ? Buffer.from(record.a.split(".").map(Number))
        : "cname" in record
          ? writtenName(record.cname)
          : Buffer.from("20010db8".padEnd(32, "0"), "hex");
    const fixed = Buffer.alloc(10);
    fixed.writeUInt16BE("a" in record ? 1 : "cname" in record ? 5 : 28, 0);
    fixed.writeUInt16BE(1, 2);
    fixed.writeUInt32BE(record.ttlSeconds ?? 60, 4);
    fixed.writeUInt16BE(data.length, 8);
    return Buffer.concat([writtenName(record.name), fixed, data]);
  });
  // The question is repeated exactly, including letter case.
  return Buffer.concat([header, query.subarray(12, 12 + name.length + 2 + 4), ...answers]);
}
