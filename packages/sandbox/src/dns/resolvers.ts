// The DNS servers that the node asks for sandboxes: a setting, or the host's present resolv.conf.
import { readFile, stat } from "node:fs/promises";
import { isIP } from "node:net";
import { fail } from "@svc/contract/failures.ts";

export type Upstream = { readonly address: string; readonly port: number };

const RESOLV_CONF = "/etc/resolv.conf";
/** The maximum age of what is known about the file's modification time. */
const RECHECK_MS = 1000;
/** The number of servers that the C library asks. */
const MAX_UPSTREAMS = 3;

/** Parses `address`, `address:port` or `[v6]:port`. */
export function parseUpstream(text: string): Upstream {
  const match = /^(?:\[(?<bracketed>[^\]]+)\]|(?<plain>[^:]+|[0-9a-fA-F:]*:[0-9a-fA-F:]*:[0-9a-fA-F:.]*))(?::(?<port>\d{1,5}))?$/.exec(text);
  const address = match?.groups?.["bracketed"] ?? match?.groups?.["plain"] ?? "";
  const port = Number(match?.groups?.["port"] ?? 53);
  if (isIP(address) === 0 || port < 1 || port > 65_535) {
    fail("SETTING_INVALID", `"${text}" is not a DNS server: expected an address, address:port or [address]:port`);
  }
  return { address, port };
}

export function parseResolvConf(text: string): Upstream[] {
  const addresses = text.split("\n").flatMap((line) => {
    const [word, address = ""] = line.trim().split(/\s+/);
    // A zone index names an interface of this host (fe80::1%eth0); the socket understands it as it stands.
    return word === "nameserver" && isIP(address) !== 0 ? [{ address, port: 53 }] : [];
  });
  // With an empty file the C library asks this host.
  return addresses.length > 0 ? addresses.slice(0, MAX_UPSTREAMS) : [{ address: "127.0.0.1", port: 53 }];
}

export interface Resolvers {
  current(): Promise<readonly Upstream[]>;
}

/** Uses fixed servers or the host's; checks the file for changes at most once per RECHECK_MS. */
export function openResolvers(fixed: readonly string[] | undefined, path: string = RESOLV_CONF): Resolvers {
  if (fixed !== undefined && fixed.length > 0) {
    const upstreams = fixed.slice(0, MAX_UPSTREAMS).map(parseUpstream);
    return { current: async () => upstreams };
  }
  let upstreams: readonly Upstream[] = parseResolvConf("");
  let version = "";
  let checkedAt = Number.NEGATIVE_INFINITY;
  let checking: Promise<void> | undefined;

  async function check(): Promise<void> {
    const seen = await stat(path).then(
      ({ mtimeMs, ino, size }) => `${mtimeMs} ${ino} ${size}`,
      () => "absent",
    );
    if (seen !== version) {
      upstreams = parseResolvConf(await readFile(path, "utf8").catch(() => ""));
      version = seen;
    }
    checkedAt = performance.now();
    checking = undefined;
  }

  return {
    async current() {
      if (performance.now() - checkedAt > RECHECK_MS) await (checking ??= check());
      return upstreams;
    },
  };
}
