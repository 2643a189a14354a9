// The replication stream as the previous release spoke it: a standby that records what a leader sends, and a leader that replays it.
import { randomUUID } from "node:crypto";
import { connect, createServer, type Socket } from "node:net";
import { until } from "@svc/harness/until.ts";

const MAGIC = 0x52435653;
const HEAD_BYTES = 40;
export const messages = { hello: 1, refused: 2, begin: 3, part: 4, whole: 5, frame: 6, beat: 7, ack: 8, ready: 9, lead: 10 } as const;

export type Message = { readonly type: number; readonly records: number; readonly epoch: bigint; readonly lsn: bigint; readonly payload: Buffer };

/** Omits the fields that later releases add to `hello` and `begin`: the end and the lineage of a log. */
export function encoded({ type, records, epoch, lsn, payload }: Message): Buffer {
  const head = Buffer.alloc(HEAD_BYTES);
  head.writeUInt32LE(MAGIC, 0);
  head.writeUInt8(type, 4);
  head.writeUInt32LE(payload.length, 8);
  head.writeUInt32LE(records, 12);
  head.writeBigUInt64LE(epoch, 16);
  head.writeBigUInt64LE(lsn, 24);
  return Buffer.concat([head, payload]);
}

function reader(onMessage: (message: Message) => void): (chunk: Buffer) => void {
  let held = Buffer.alloc(0);
  return (chunk) => {
    held = Buffer.concat([held, chunk]);
    while (held.length >= HEAD_BYTES) {
      const end = HEAD_BYTES + held.readUInt32LE(8);
      if (held.length < end) return;
      const payload = Buffer.from(held.subarray(HEAD_BYTES, end));
      onMessage({ type: held.readUInt8(4), records: held.readUInt32LE(12), epoch: held.readBigUInt64LE(16), lsn: held.readBigUInt64LE(24), payload });
      held = held.subarray(end);
    }
  };
}

const said = (type: number, epoch: bigint, text = "") => encoded({ type, records: 0, epoch, lsn: 0n, payload: Buffer.from(text) });

const acked = (epoch: bigint, lsn: bigint) => encoded({ type: messages.ack, records: 0, epoch, lsn, payload: Buffer.alloc(0) });

/** Joins the leader at HOST:PORT as a standby of that log format, and returns what it receives. */
export async function recordStream(at: string, clusterID: string, format: number): Promise<{ readonly heard: Message[] } & Disposable> {
  const { hostname, port } = new URL(`tcp://${at}`);
  const id = randomUUID();
  const heard: Message[] = [];
  const socket = connect(Number(port), hostname);
  socket
    .on("error", () => undefined)
    .on(
      "data",
      reader((message) => {
        heard.push(message);
        if (message.type === messages.whole) socket.write(said(messages.ready, message.epoch));
        if (message.type === messages.whole) socket.write(acked(message.epoch, message.lsn));
        // A frame's header has the magic, the size, the number of its first record, and the count.
        if (message.type === messages.frame)
          socket.write(acked(message.epoch, message.payload.readBigUInt64LE(8) + BigInt(message.payload.readUInt32LE(16)) - 1n));
      }),
    );
  const member = { id, name: "former", rpc: "127.0.0.1:1", http: "http://127.0.0.1:1", stream: "127.0.0.1:1" };
  socket.write(said(messages.hello, 1n, JSON.stringify({ clusterID, member, format })));
  return { heard, [Symbol.dispose]: () => socket.destroy() };
}

/** Starts a leader that sends each standby these messages, and heartbeats until it ends. */
export async function replayStream(sent: readonly Message[]): Promise<{ readonly port: number; ready(): Promise<void> } & Disposable> {
  const sockets = new Set<Socket>();
  let isReady = false;
  const server = createServer((socket) => {
    sockets.add(socket);
    const epoch = sent[0]?.epoch ?? 1n;
    socket
      .on("error", () => undefined)
      .on(
        "data",
        reader(({ type }) => {
          if (type === messages.hello) for (const message of sent) socket.write(encoded(message));
          if (type === messages.ready) isReady = true;
        }),
      );
    const beats = setInterval(() => socket.write(said(messages.beat, epoch)), 50);
    socket.on("close", () => clearInterval(beats));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    port: (server.address() as { port: number }).port,
    ready: async () => void (await until("the standby has it all", () => isReady || undefined)),
    [Symbol.dispose]() {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}
