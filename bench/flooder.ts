// Clients that keep a server busy on purpose, in a process of their own: slow heads, one connection that never rests, new connections.
import { connect, type Socket } from "node:net";

const [kind = "", port = "", count = "1"] = process.argv.slice(2);
const HEAD = `GET /v2/sandboxes HTTP/1.1\r\nHost: a\r\n${Array.from({ length: 120 }, (_, index) => `X-Line-${index}: ${"v".repeat(250)}\r\n`).join("")}\r\n`;
const REQUEST = "GET /v2/sandboxes HTTP/1.1\r\nHost: a\r\n\r\n";

function dial(onConnect: (socket: Socket) => void): void {
  const socket = connect({ host: "127.0.0.1", port: Number(port), noDelay: true });
  socket.on("connect", () => onConnect(socket));
  socket.on("error", () => {}).on("data", () => {});
  socket.on("close", () => setTimeout(dial, 5, onConnect));
}

const floods: Record<string, () => void> = {
  /** `count` heads of 32 KiB, a byte each every 10 ms. */
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
  /** `count` connections, each byte as soon as the one before was taken. */
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
  /** Connects and leaves, `count` at a time. */
  connects() {
    for (let index = 0; index < Number(count); index++) dial((socket) => socket.destroy());
  },
};

floods[kind]?.();
process.stdout.write("flooding\n");
