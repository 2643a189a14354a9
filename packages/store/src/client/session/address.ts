// Parses the master's address in a setting.
import { fail } from "@svc/contract/failures.ts";
import type { PeerClient } from "@svc/kit/peers/peer-client.ts";

export type MasterAddress = {
  readonly host: string;
  readonly port: number;
  /** Set for a master that is reached by TLS. */
  readonly peers?: PeerClient;
};

const DEFAULT_PORT = 50_051;

/** @throws INVALID_REQUEST for anything but HOST, HOST:PORT or [IPv6]:PORT. */
export function masterAddress(text: string): MasterAddress {
  const [, bracketed, plain, port] = /^(?:\[([0-9a-fA-F:.]+)\]|([^:\s/[\]]+))(?::(\d{1,5}))?$/.exec(text) ?? [];
  const host = bracketed ?? plain;
  const number = port === undefined ? DEFAULT_PORT : Number(port);
  if (host === undefined || number < 1 || number > 65_535)
    return fail("INVALID_REQUEST", `the master's address: expected HOST:PORT, got ${JSON.stringify(text)}`);
  return { host, port: number };
}
