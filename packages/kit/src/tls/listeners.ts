// The listeners of a proxy: plain HTTP alone, or TLS on the given address and plain HTTP for this machine's own programs on a port of loopback.
import type { Log } from "../log.ts";
import type { Metrics } from "../metrics.ts";
import { Front, type FrontOptions } from "../proxy/front.ts";
import { SecureFront, type TlsLimits } from "./secure-front.ts";
import type { ServedCertificates } from "./served.ts";

export type Bound = { readonly host: string; readonly port: number };

export type ListenersOptions = FrontOptions & {
  /** Absent: plain HTTP. */
  readonly certificates?: ServedCertificates | undefined;
  readonly tlsLimits?: Partial<TlsLimits> | undefined;
  readonly log: Log;
  readonly metrics: Metrics;
};

export type Listeners = {
  readonly front: Front;
  /** Returns where clients connect, and where programs of this machine do without TLS. */
  listen(): Promise<{ readonly address: Bound; readonly local: Bound }>;
  close(): Promise<void>;
};

const LOOPBACK = { host: "127.0.0.1", port: 0 };

export function openListeners(options: ListenersOptions): Listeners {
  const { certificates, listen, log, metrics } = options;
  if (certificates === undefined) {
    const front = new Front(options);
    return {
      front,
      async listen() {
        const address = await front.listen();
        return { address, local: address };
      },
      close: () => front.close(),
    };
  }
  const front = new Front({ ...options, listen: LOOPBACK });
  const secure = new SecureFront({ listen, certificates, front, log, metrics, limits: options.tlsLimits });
  return {
    front,
    async listen() {
      const address = await secure.listen();
      return { address, local: await front.listen() };
    },
    async close() {
      secure.stopAccepting();
      await front.close();
      secure.close();
      certificates.close();
    },
  };
}
