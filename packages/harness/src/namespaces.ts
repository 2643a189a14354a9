// Network namespaces for a test, one per server, with a router between them that can cut any two off from each other. The test itself is
// the router: it runs in a separate namespace and is never cut off.
import { execFileSync } from "node:child_process";
import { readdirSync, writeFileSync } from "node:fs";

export type Namespace = {
  readonly netns: string;
  /** The address of the namespace, for servers in it. */
  readonly host: string;
};

/** In a one-way cut `from` no longer receives, but is still received; otherwise neither receives the other. */
export type Cut = { readonly from: string; readonly to: string; readonly isOneWay: boolean };

export type Namespaces = Disposable & {
  at(name: string): Namespace;
  /** Drops packets silently, including those of open connections. */
  cut(cut: Cut): void;
  heal(): void;
};

const PREFIX = "svc-cut-";
const NETWORK = "10.213";
const run = (program: string, ...args: string[]) => execFileSync(program, args, { stdio: ["ignore", "pipe", "pipe"] });

/** Returns the command line that runs `command` in this namespace. */
export function inside(namespace: Namespace | undefined, command: readonly string[]): readonly string[] {
  return namespace === undefined ? command : ["nsenter", `--net=/run/netns/${namespace.netns}`, "--", ...command];
}

/** Must be called in a separate network namespace; see `unshare --net`. */
export function openNamespaces(names: readonly string[]): Namespaces {
  sweep();
  run("ip", "link", "set", "lo", "up");
  writeFileSync("/proc/sys/net/ipv4/ip_forward", "1");
  run("nft", "add", "table", "ip", "cut");
  run("nft", "add", "chain", "ip", "cut", "between", "{ type filter hook forward priority 0 ; }");
  const namespaces = new Map<string, Namespace>();
  for (const [index, name] of names.entries()) {
    const netns = `${PREFIX}${process.pid}-${name}`;
    const [host, router] = [`${NETWORK}.${index}.2`, `${NETWORK}.${index}.1`];
    run("ip", "netns", "add", netns);
    run("ip", "link", "add", `cut${index}`, "type", "veth", "peer", "name", "cut", "netns", netns);
    run("ip", "address", "add", `${router}/30`, "dev", `cut${index}`);
    run("ip", "link", "set", `cut${index}`, "up");
    const there = (...args: string[]) => run("ip", "-n", netns, ...args);
    there("address", "add", `${host}/30`, "dev", "cut");
    for (const link of ["lo", "cut"]) there("link", "set", link, "up");
    // Without a default route, only the other namespaces are reachable.
    there("route", "add", `${NETWORK}.0.0/16`, "via", router);
    namespaces.set(name, { netns, host });
  }
  const at = (name: string) => namespaces.get(name) as Namespace;
  return {
    at,
    cut({ from, to, isOneWay }) {
      const ways = isOneWay
        ? [[to, from] as const]
        : ([
            [to, from],
            [from, to],
          ] as const);
      for (const [source, target] of ways)
        run("nft", "add", "rule", "ip", "cut", "between", "ip", "saddr", at(source).host, "ip", "daddr", at(target).host, "drop");
    },
    heal: () => void run("nft", "flush", "chain", "ip", "cut", "between"),
    [Symbol.dispose]() {
      for (const { netns } of namespaces.values()) run("ip", "netns", "delete", netns);
    },
  };
}

/** Removes the namespaces of killed tests. */
function sweep(): void {
  for (const netns of readdirSync("/run/netns", { withFileTypes: true }).map(({ name }) => name)) {
    const pid = new RegExp(`^${PREFIX}(\\d+)-`).exec(netns)?.[1];
    if (pid === undefined) continue;
    try {
      process.kill(Number(pid), 0);
    } catch {
      run("ip", "netns", "delete", netns);
    }
  }
}
