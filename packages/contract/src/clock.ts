// How far the clock of a node may be from its deployment's, and what is said of one that is further.

/** A node whose clock is further from the deployment's takes no new sandboxes. */
export const CLOCK_LIMIT_MS = 2_000;

/** Why such a node is not ready. */
export function clockReason(skewMs: number): string {
  const seconds = (Math.abs(skewMs) / 1000).toFixed(1);
  return `its clock is ${seconds} s ${skewMs > 0 ? "ahead of" : "behind"} the deployment's (etcd and the other nodes), and the maximum is ${CLOCK_LIMIT_MS / 1000} s: set the machine's clock, for example by NTP`;
}
