// The DNS servers that alone answer a sandbox's questions, as clients name them.
import { isIPv4 } from "node:net";
import { fail } from "@svc/contract/failures.ts";
import { destinationAllowed, type ReadPolicy } from "./policy.ts";

/** Returns the servers as ADDRESS or ADDRESS:PORT. @throws INVALID_REQUEST with the index. */
export function dnsServersOf(input: readonly string[] | null | undefined, read: ReadPolicy): string[] | undefined {
  if (input === undefined || input === null || input.length === 0) return undefined;
  return input.map((text, at) => {
    const refuse = (why: string): never => fail("INVALID_REQUEST", `network.dnsServers[${at}]: "${text}": ${why}`);
    const [address = "", port = "53", ...more] = text.split(":");
    const isValid = isIPv4(address) && /^\d{1,5}$/.test(port) && Number(port) >= 1 && Number(port) <= 65_535 && more.length === 0;
    if (!isValid) refuse("expected an IPv4 address, with or without :PORT");
    // No rule names the empty name, so that ranges alone decide.
    if (!destinationAllowed(read, "", address)) refuse(`the rules of this sandbox do not allow its address; add ${address} to allowOut`);
    return text;
  });
}
