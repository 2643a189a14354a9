// By which URL a port inside a sandbox is reached: its own host name, or the server's URL with headers.

export type Named = { readonly sandboxID: string; readonly domain?: string | null | undefined; readonly trafficAccessToken?: string | null | undefined };

const LOOPBACK = /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/;

export function portAddress(baseURL: string, { sandboxID, domain, trafficAccessToken }: Named, port: number) {
  const base = new URL(baseURL);
  // *.localhost is this machine to browsers and to most resolvers.
  const host = LOOPBACK.test(base.hostname) ? `localhost${base.port === "" ? "" : `:${base.port}`}` : (domain ?? base.host);
  const headers: Record<string, string> = { "x-svc-sandbox-id": sandboxID, "x-svc-target-port": String(port) };
  if (trafficAccessToken) headers["svc-traffic-access-token"] = trafficAccessToken;
  return { url: `${base.protocol}//${port}-${sandboxID}.${host}/`, headers, viaHeadersURL: `${baseURL}/proxy/` };
}
