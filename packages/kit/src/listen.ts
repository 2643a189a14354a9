// A listening address as a setting, and as a URL that a client on this machine can dial.
import { z } from "zod";

export type ListenAddress = { readonly host: string; readonly port: number };

/** A setting of the form HOST:PORT or [IPv6]:PORT; port 0 takes a free one. */
export const listenAddress = z
  .string()
  .regex(/^(\[[0-9a-fA-F:]+\]|[^:\s]+):\d{1,5}$/, "expected HOST:PORT")
  .transform((text, context): ListenAddress => {
    const at = text.lastIndexOf(":");
    const port = Number(text.slice(at + 1));
    if (port > 65535) context.addIssue({ code: "custom", message: `port ${port} is above 65535` });
    return { host: text.slice(0, at).replace(/^\[|\]$/g, ""), port };
  });

/** `port` is the port that was actually bound; all-zero addresses become localhost. */
export function urlOf(host: string, port: number, scheme: "http" | "https" = "http"): string {
  if (host === "0.0.0.0" || host === "::") return `${scheme}://localhost:${port}`;
  return `${scheme}://${host.includes(":") ? `[${host}]` : host}:${port}`;
}

/** Like urlOf, but with a numeric address, because `localhost` may reach another server on the other IP version. */
export function dialledAt(host: string, port: number): string {
  return urlOf(host === "0.0.0.0" ? "127.0.0.1" : host === "::" ? "::1" : host, port);
}
