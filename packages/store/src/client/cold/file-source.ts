// A folder whose files come when they are read: the transfer engine asks here for those that are not there yet.
import { closeSync, openSync, rmSync } from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import { join } from "node:path";

const NAME = "source";
const REQUEST_BYTES = 8;
const MAX_CONNECTIONS = 64;
/** Within what the engine waits. */
const ANSWER_MS = 9000;

export type FileSource = { close(): void };

/** `bring` resolves once the file is in the folder. */
export async function openFileSource(folder: string, bring: (file: number) => Promise<void>): Promise<FileSource> {
  rmSync(join(folder, NAME), { force: true });
  const sockets = new Set<Socket>();
  const server: Server = createServer((socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket)).on("error", () => undefined);
    socket.setTimeout(ANSWER_MS, () => socket.destroy());
    let request = Buffer.alloc(0);
    socket.on("data", (chunk) => {
      request = Buffer.concat([request, chunk]);
      if (request.length < REQUEST_BYTES) return;
      socket.removeAllListeners("data").pause();
      if (request.length > REQUEST_BYTES) return void socket.destroy();
      bring(Number(request.readBigUInt64LE())).then(
        () => socket.end("1"),
        () => socket.end("0"),
      );
    });
  });
  server.maxConnections = MAX_CONNECTIONS;
  // The folder's own path may be longer than a socket's address can be.
  const descriptor = openSync(folder, "r");
  await new Promise<void>((resolve, reject) => server.once("error", reject).listen(`/proc/self/fd/${descriptor}/${NAME}`, resolve)).catch((error) => {
    closeSync(descriptor);
    throw error;
  });
  server.unref();
  return {
    close() {
      // Its end removes the socket by the descriptor's path.
      server.close(() => closeSync(descriptor));
      for (const socket of sockets) socket.destroy();
    },
  };
}
