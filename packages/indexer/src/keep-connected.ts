// Keeps a subscriber connected: libzmq tries again after a cut, but gives up a peer whose message is too large or malformed.
import type { Subscriber } from "zeromq";

/** libzmq's own attempts begin within its reconnect interval of 100 ms. */
const GIVEN_UP_MS = 1_000;

export type Connection = {
  onConnected(): void;
  onDisconnected(): void;
  /** libzmq gave the connection up; it is made anew. */
  onGivenUp(): void;
};

/** `address`: absent where it binds, and the publisher comes to us. @returns what stops it. */
export function keepConnected(socket: Subscriber, address: string | undefined, connection: Connection): () => void {
  let timer: NodeJS.Timeout | undefined;
  const alive = () => {
    clearTimeout(timer);
    timer = undefined;
  };
  socket.events.on("connect:delay", alive);
  socket.events.on("connect:retry", alive);
  socket.events.on("handshake", () => {
    alive();
    connection.onConnected();
  });
  socket.events.on("disconnect", () => {
    connection.onDisconnected();
    alive();
    if (address !== undefined) timer = setTimeout(() => again(address), GIVEN_UP_MS);
  });

  function again(to: string): void {
    if (socket.closed) return;
    connection.onGivenUp();
    try {
      socket.disconnect(to);
    } catch {
      // libzmq has forgotten the endpoint with the connection
    }
    socket.connect(to);
  }
  return alive;
}
