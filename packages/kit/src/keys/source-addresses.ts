// The addresses from which alone a key is accepted.
import { BlockList, isIPv6 } from "node:net";
import { Failure } from "@svc/contract/failures.ts";

/** Returns undefined where every address is accepted. @throws INVALID_REQUEST. */
export function addressesOf(ranges: readonly string[] | undefined): BlockList | undefined {
  if (ranges === undefined || ranges.length === 0) return undefined;
  const list = new BlockList();
  for (const range of ranges) {
    const [address = "", bits] = range.split("/");
    const family = isIPv6(address) ? "ipv6" : "ipv4";
    try {
      if (bits === undefined) list.addAddress(address, family);
      else list.addSubnet(address, Number(bits), family);
    } catch (error) {
      throw new Failure("INVALID_REQUEST", `sourceAddresses: expected addresses or ranges such as 203.0.113.7 or 10.0.0.0/8, got '${range}'`, { cause: error });
    }
  }
  return list;
}
