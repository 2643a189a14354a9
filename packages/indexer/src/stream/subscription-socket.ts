// The SUB socket of a publisher: where it connects, and what is counted and logged about its connections.
import type { Log } from "@svc/kit/log.ts";
import { readEndpoints } from "../registrations/register-input.ts";
import { ZmtpSocket } from "../zmtp/socket.ts";
import type { Counts } from "./counts.ts";
import { MAX_MESSAGE_BYTES } from "./zmq.ts";

export type Heard = {
  readonly key: string;
  readonly endpoint: string;
  readonly counts: Counts;
  readonly log: Pick<Log, "info" | "warn" | "debug">;
  /** Called when a connection is ready. */
  onReady(): void;
  onReadable(): void;
};

export function subscribeTo({ key, endpoint, counts, log, onReady, onReadable }: Heard): ZmtpSocket {
  const socket: ZmtpSocket = new ZmtpSocket({
    type: "SUB",
    // One of several masters publishes; a master that takes over continues its numbers.
    endpoints: readEndpoints(endpoint, "endpoint"),
    maxMessageBytes: MAX_MESSAGE_BYTES,
    onReady: () => {
      counts.unreachableWhy = "";
      counts.awaySinceMs = undefined;
      onReady();
    },
    onReadable,
    onLost: ({ address }, why, broken) => {
      counts.disconnects++;
      if (broken) counts.brokeOff(why);
      log[broken ? "warn" : "info"]({ subscription: key, address, why }, "the connection to the publisher ended; it is dialled again");
      if (!socket.connected) counts.awaySinceMs ??= Date.now();
    },
    onFailed: (address, why, broken) => {
      counts.unreachableWhy = why;
      if (broken) counts.brokeOff(why);
      log[broken ? "warn" : "debug"]({ subscription: key, address, why }, "the publisher cannot be reached; it is dialled again");
    },
  });
  return socket;
}
