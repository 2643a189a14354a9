// The master's own look at a holder: one connect to its endpoint, whose failure keeps new objects and readers away from it.
import { connect } from "node:net";
import type { NativeMaster } from "./native.ts";

/** Endpoints under probe at once; more wait for the next suspicion. */
const MAX_PROBES = 64;
const AGAIN_MS = 1000;

export type Probes = { suspect(segment: number, endpoint: string): void; close(): void };

export function openProbes(native: NativeMaster, timeoutMs: number, onFound: (endpoint: string, reached: boolean) => void): Probes {
  /** Segments whose endpoint took a connection once: only there does a refused one mean anything. */
  const reachable = new Set<number>();
  const failing = new Map<number, NodeJS.Timeout>();
  const probing = new Set<number>();
  let ended = false;

  function suspect(segment: number, given: string): void {
    // Of a NOF segment, the engine that serves it.
    const endpoint = /^nvmeof\/(.+)\/[^/]+$/.exec(given)?.[1] ?? given;
    const at = endpoint.lastIndexOf(":");
    const port = Number(endpoint.slice(at + 1));
    if (at <= 0 || !(port > 0 && port < 65_536) || probing.has(segment) || probing.size >= MAX_PROBES) return;
    probing.add(segment);
    const socket = connect({ host: endpoint.slice(0, at).replace(/^\[|\]$/g, ""), port });
    socket.setTimeout(timeoutMs, () => socket.destroy(new Error("timed out")));
    socket.once("connect", () => end(true));
    socket.once("error", () => end(false));

    function end(reached: boolean): void {
      socket.destroy();
      if (!probing.delete(segment)) return;
      const wasFailing = failing.has(segment);
      clearTimeout(failing.get(segment));
      failing.delete(segment);
      if (reached) reachable.add(segment);
      else if (!reachable.has(segment)) return;
      // Unmounted meanwhile: nobody is sent there any more.
      if (ended || !native.probed(segment, reached)) {
        reachable.delete(segment);
        return;
      }
      if (reached === wasFailing) onFound(endpoint, reached);
      if (!reached) failing.set(segment, setTimeout(() => suspect(segment, endpoint), AGAIN_MS).unref());
    }
  }

  return {
    suspect,
    close() {
      ended = true;
      for (const timer of failing.values()) clearTimeout(timer);
      failing.clear();
    },
  };
}
