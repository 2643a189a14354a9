// A TCP relay between a client and a server that can cut, stall and delay connections.
import { connect, createServer, type Socket } from "node:net";

export type Relay = AsyncDisposable & {
  readonly port: number;
  /** Cuts once, after this many more bytes towards the peer. */
  cutAfterBytes: number;
  readonly cuts: number;
  /** While true, nothing is passed on, like on a half-open connection. */
  stalled: boolean;
  /** The delay of each chunk. */
  delayMs: number;
  cutAll(): void;
};

export async function startRelay(targetPort: number): Promise<Relay> {
  const sockets = new Set<Socket>();
  const state = { cutAfterBytes: Number.POSITIVE_INFINITY, cuts: 0, stalled: false, delayMs: 0 };
  const server = createServer((near) => {
    const far = connect(targetPort, "127.0.0.1");
    for (const socket of [near, far]) {
      sockets.add(socket);
      socket.on("error", () => socket.destroy()).on("close", () => sockets.delete(socket));
    }
    const end = () => {
      near.destroy();
      far.destroy();
    };
    const pass = async (chunk: Buffer, to: Socket, counted: boolean) => {
      if (state.delayMs > 0) await new Promise((resolve) => setTimeout(resolve, state.delayMs));
      while (state.stalled) {
        if (to.destroyed) return;
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
      if (counted && (state.cutAfterBytes -= chunk.length) <= 0) {
        state.cutAfterBytes = Number.POSITIVE_INFINITY;
        state.cuts++;
        end();
        return;
      }
      if (!to.destroyed && !to.write(chunk)) await new Promise<void>((resolve) => to.once("drain", resolve).once("close", () => resolve()));
    };
    const pump = async (from: Socket, to: Socket, counted: boolean) => {
      try {
        for await (const chunk of from) await pass(chunk as Buffer, to, counted);
        to.end();
      } catch {
        end();
      }
    };
    void pump(near, far, true);
    void pump(far, near, false);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return Object.assign(state, {
    port: (server.address() as { port: number }).port,
    cutAll() {
      for (const socket of sockets) socket.destroy();
    },
    async [Symbol.asyncDispose]() {
      state.stalled = false;
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  });
}
