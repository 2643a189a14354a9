// Keeps a subscriber connected: libzmq tries again after a cut, but gives up a peer whose message is too large or malformed.
import type { Subscriber } from "zeromq";
import type { Endpoint } from "./register-input.ts";

/** libzmq's own attempts begin within its reconnect interval of 100 ms. */
const GIVEN_UP_MS = 1_000;

export type Connection = {
  onConnected(address: string): void;
  onDisconnected(address: string): void;
  /** libzmq gave the connection up; it is made anew. */
  onGivenUp(): void;
};

/** Where it binds, the publisher comes to us. @returns what stops it. */
export function keepConnected(socket: Subscriber, endpoints: readonly Endpoint[], connection: Connection): () => void {
  const addresses = endpoints.filter(({ binds }) => !binds).map(({ address }) => address);
  const timers = new Map<string, NodeJS.Timeout>();
  // Of a single one there is no doubt, however libzmq spells it.
  const named = (address: string) => (addresses.length === 1 ? (addresses[0] as string) : address);
  const alive = ({ address }: { address: string }) => {
    clearTimeout(timers.get(named(address)));
    timers.delete(named(address));
  };
  socket.events.on("connect:delay", alive);
  socket.events.on("connect:retry", alive);
  socket.events.on("handshake", (event) => {
    alive(event);
    connection.onConnected(named(event.address));
  });
  socket.events.on("disconnect", (event) => {
    const address = named(event.address);
    connection.onDisconnected(address);
    alive(event);
    if (addresses.includes(address))
      timers.set(
        address,
        setTimeout(() => again(address), GIVEN_UP_MS),
      );
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
  return () => {
    for (const timer of timers.values()) clearTimeout(timer);
  };
}
