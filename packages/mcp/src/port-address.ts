// The URL of a port inside a sandbox: its own host name, or the server's URL with headers.

export type Named = { readonly sandboxID: string; readonly domain?: string | null | undefined; readonly trafficAccessToken?: string | null | undefined };

const LOOPBACK = /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/;

export function portAddress(baseURL: string, { sandboxID, domain, trafficAccessToken }: Named, port: number) {
  const base = new URL(baseURL);
  // Browsers and most resolvers resolve *.localhost to this machine.
  const host = LOOPBACK.test(base.hostname) ? `localhost${base.port === "" ? "" : `:${base.port}`}` : (domain ?? base.host);
  const headers: Record<string, string> = { "x-svc-sandbox-id": sandboxID, "x-svc-target-port": String(port) };
  if (trafficAccessToken) headers["svc-traffic-access-token"] = trafficAccessToken;
  return { url: `${base.protocol}//${port}-${sandboxID}.${host}/`, headers, viaHeadersURL: `${baseURL}/proxy/` };
}
