// The SUB socket of a publisher: where it connects, and what is counted and logged about its connections.
import type { Registration } from "@svc/contract/indexer.ts";
import type { Log } from "@svc/kit/log.ts";
import { readEndpoints } from "../registrations/register-input.ts";
import type { Listeners, LiveSocket } from "../zmtp/listeners.ts";
import { type SocketOptions, ZmtpSocket } from "../zmtp/socket.ts";
import type { Counts } from "./counts.ts";
import { MAX_MESSAGE_BYTES } from "./zmq.ts";

export type Heard = {
  readonly key: string;
  readonly registration: Registration;
  readonly listeners: Listeners;
  readonly counts: Counts;
  readonly log: Pick<Log, "info" | "warn" | "debug">;
  /** Called when a connection is ready. */
  onReady(): void;
  onReadable(): void;
};

export function subscribeTo({ key, registration, listeners, counts, log, onReady, onReadable }: Heard): LiveSocket {
  const endpoints = readEndpoints(registration.endpoint, "endpoint");
  const options: SocketOptions = {
    type: "SUB",
    // One of several masters publishes; a master that takes over continues its numbers.
    endpoints,
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
  };
  const [bound] = endpoints;
  const socket: LiveSocket =
    bound?.binds === true
      ? listeners.join(bound.address, {
          ...options,
          instance: registration.instance_id,
          model: registration.modelname,
          onStray: (topic) => {
            counts.strays++;
            counts.strayTopic = topic;
          },
        })
      : new ZmtpSocket(options);
  return socket;
}
