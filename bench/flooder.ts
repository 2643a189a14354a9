// Clients that overload a server on purpose, in a separate process: slow heads and bodies, busy connections, new connections, RPC frames.
import { connect, type Socket } from "node:net";

const [kind = "", port = "", count = "1", path = "/v2/sandboxes"] = process.argv.slice(2);
const MIB = 2 ** 20;
const HEAD = `GET ${path} HTTP/1.1\r\nHost: a\r\n${Array.from({ length: 120 }, (_, index) => `X-Line-${index}: ${"v".repeat(250)}\r\n`).join("")}\r\n`;
const REQUEST = `GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`;
const BODY_BYTES = 8 * MIB;
const UPLOAD = `PUT ${path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: ${BODY_BYTES}\r\n\r\n`;
/** The head of an RPC request: magic, sequence, an unknown function, the body's length. */
const RPC_HEAD_BYTES = 20;
function rpcHead(bodyBytes: number): Buffer {
  const head = Buffer.alloc(RPC_HEAD_BYTES);
  head[0] = 21;
  head.writeUInt32LE(bodyBytes, 12);
  return head;
}

function dial(onConnect: (socket: Socket) => void): void {
  const socket = connect({ host: "127.0.0.1", port: Number(port), noDelay: true });
  socket.on("connect", () => onConnect(socket));
  socket.on("error", () => {}).on("data", () => {});
  socket.on("close", () => setTimeout(dial, 5, onConnect));
}

const floods: Record<string, () => void> = {
  /** `count` heads of 32 KiB, one byte each every 10 ms. */
  slow() {
    const places = new Map<Socket, number>();
    for (let index = 0; index < Number(count); index++) {
      dial((socket) => {
        places.set(socket, 0);
        socket.once("close", () => places.delete(socket));
      });
    }
    setInterval(() => {
      for (const [socket, at] of places) {
        socket.write(HEAD[at % HEAD.length] ?? "");
        places.set(socket, at + 1);
      }
    }, 10);
  },
  /** `count` connections that send each byte once the previous one was accepted. */
  bytes() {
    for (let index = 0; index < Number(count); index++) {
      dial((socket) => {
        let at = 0;
        const next = () => {
          if (!socket.destroyed) socket.write(HEAD[at++ % HEAD.length] ?? "", () => setImmediate(next));
        };
        next();
      });
    }
  },
  /** `count` connections that send requests without waiting for answers. */
  pipeline() {
    const many = Buffer.from(REQUEST.repeat(200));
    for (let index = 0; index < Number(count); index++) {
      dial((socket) => {
        const go = () => {
          while (!socket.destroyed && socket.write(many));
        };
        socket.on("drain", go);
        go();
      });
    }
  },
  /** `count` clients that send half of a body of 8 MiB and then stay connected. */
  halves() {
    for (let index = 0; index < Number(count); index++) dial((socket) => socket.write(UPLOAD + "[".repeat(BODY_BYTES / 2)));
  },
  /** `count` connections whose RPC heads arrive one byte every 10 ms. */
  rpcSlow() {
    const sockets = new Set<Socket>();
    for (let index = 0; index < Number(count); index++)
      dial((socket) => {
        sockets.add(socket);
        socket.once("close", () => sockets.delete(socket)).write(rpcHead(0).subarray(0, 1));
      });
    setInterval(() => {
      for (const socket of sockets) socket.write("\0");
    }, 10);
  },
  /** `count` connections that announce a body of 64 MiB and send half of it. */
  rpcHalves() {
    for (let index = 0; index < Number(count); index++) dial((socket) => socket.write(Buffer.concat([rpcHead(64 * MIB), Buffer.alloc(32 * MIB)])));
  },
  /** `count` connections that send RPC requests without waiting for answers. */
  rpcPipeline() {
    const many = Buffer.concat(Array.from({ length: 1000 }, () => rpcHead(0)));
    for (let index = 0; index < Number(count); index++)
      dial((socket) => {
        const go = () => {
          while (!socket.destroyed && socket.write(many));
        };
        socket.on("drain", go);
        go();
      });
  },
  /** Connects and leaves, `count` at a time. */
  connects() {
    for (let index = 0; index < Number(count); index++) dial((socket) => socket.destroy());
  },
};

// A flood must end with its bench.
const startedBy = process.ppid;
setInterval(() => {
  if (process.ppid !== startedBy) process.exit();
}, 500);
floods[kind]?.();
process.stdout.write("flooding\n");
