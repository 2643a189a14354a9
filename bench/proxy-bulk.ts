// The ends of the bulk measurement: a sink that counts bytes, and a client that sends or receives; both use raw sockets.
import { connect, createServer } from "node:net";

/** Listens in place of a sandbox's application; answers a request once the announced body has arrived. */
export function startSink(host: string, port: number): void {
  createServer((socket) => {
    let remaining = -1;
    socket.on("error", () => {});
    socket.on("data", (chunk) => {
      let bytes = chunk.length;
      if (remaining < 0) {
        const head = chunk.toString("latin1", 0, 4096);
        const end = head.indexOf("\r\n\r\n") + 4;
        remaining = Number(/content-length: (\d+)/i.exec(head.slice(0, end))?.[1]);
        bytes -= end;
      }
      remaining -= bytes;
      if (remaining > 0) return;
      remaining = -1;
      socket.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    });
  }).listen(port, host);
}

/** The seconds until `bytes` of a GET's response have arrived. */
export function download(port: number, head: string, bytes: number): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  const started = performance.now();
  let received = 0;
  const socket = connect({
    host: "127.0.0.1",
    port,
    onread: {
      buffer: Buffer.allocUnsafeSlow(1 << 20),
      callback: (length) => {
        received += length;
        if (received >= bytes) {
          resolve((performance.now() - started) / 1000);
          socket.destroy();
        }
        return true;
      },
    },
  });
  socket.on("error", reject).on("end", () => reject(new Error(`the response ended after ${received} bytes`)));
  socket.write(head);
  return promise;
}

/** The seconds until the answer to a body of `bytes` has arrived. */
export function upload(port: number, head: string, bytes: number): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  const started = performance.now();
  const piece = Buffer.alloc(1 << 20);
  const socket = connect({ host: "127.0.0.1", port });
  let left = bytes;
  const send = () => {
    while (left > 0) {
      left -= piece.length;
      if (!socket.write(piece)) return;
    }
  };
  socket.on("error", reject).on("drain", send);
  socket.once("data", (answer) => {
    if (answer.toString("latin1").startsWith("HTTP/1.1 200")) resolve((performance.now() - started) / 1000);
    else reject(new Error(answer.toString("latin1")));
    socket.destroy();
  });
  socket.write(head);
  send();
  return promise;
}

if (process.argv[2] === "sink") {
  startSink(process.argv[3] as string, Number(process.argv[4]));
  process.stdin.resume().on("end", () => process.exit(0));
}
