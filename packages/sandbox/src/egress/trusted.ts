// The authorities by which the node checks the certificates of hosts with rules and of proxies.
import { createSecureContext, getCACertificates, type SecureContext } from "node:tls";

/** Returns the host's own store and further authorities in PEM; a host without a store gets the authorities that come with Node. */
export function trustedBy(authorities: string): SecureContext {
  const system = getCACertificates("system");
  const own = system.length > 0 ? system : getCACertificates("bundled");
  return createSecureContext({ ca: [...own, ...(authorities === "" ? [] : [authorities])] });
}
