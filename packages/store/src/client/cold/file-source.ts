// A folder whose files are fetched on demand: the transfer engine requests missing files through a socket in the folder.
import { closeSync, openSync, rmSync } from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import { join } from "node:path";

const NAME = "source";
const REQUEST_BYTES = 8;
const MAX_CONNECTIONS = 64;
/** Stays below the time that the engine waits. */
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
  // A path through the descriptor is short, whereas the folder's own path may exceed the length of a socket address.
  const descriptor = openSync(folder, "r");
  await new Promise<void>((resolve, reject) => server.once("error", reject).listen(`/proc/self/fd/${descriptor}/${NAME}`, resolve)).catch((error) => {
    closeSync(descriptor);
    throw error;
  });
  server.unref();
  return {
    close() {
      // Node unlinks the socket by that path when the server has closed, so the descriptor stays open until then.
      server.close(() => closeSync(descriptor));
      for (const socket of sockets) socket.destroy();
    },
  };
}
