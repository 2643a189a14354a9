// `svc network`: shows or replaces a sandbox's network rules.
import type { SvcClient } from "@svc/contract/client.ts";
import type { SandboxDetail } from "@svc/contract/sandbox.ts";
import { type OutputFormat, outputFormat, printJSON, printTable } from "@svc/contract/table.ts";
import { type AccessOptions, withClient } from "../access/access.ts";
import { UsageError } from "../output/complain.ts";

/** Rules by host, in the form of the API. */
export type HeaderRules = Record<string, { transform: { headers: Record<string, string> } }[]>;

export type EgressProxyOption = { readonly address: string; readonly username?: string; readonly password?: string };

type Options = AccessOptions & {
  allowOut?: string[];
  denyOut?: string[];
  rule?: HeaderRules;
  egressProxy?: EgressProxyOption;
  dnsServer?: string[];
  internet: boolean;
  clear?: true;
  output?: OutputFormat;
};

export function network(sandboxID: string, options: Options): Promise<number> {
  const { allowOut, denyOut, rule, egressProxy, dnsServer, internet, clear, output, ...access } = options;
  const isChange = [allowOut, denyOut, rule, egressProxy, dnsServer].some((given) => given !== undefined) || !internet;
  if (clear === true && isChange) throw new UsageError("network takes rules or --clear, not both");
  return withClient(access, async (client) => {
    if (isChange || clear === true) {
      await client.setNetwork(sandboxID, {
        ...(allowOut === undefined ? {} : { allowOut }),
        ...(denyOut === undefined ? {} : { denyOut }),
        ...(rule === undefined ? {} : { rules: rule }),
        ...(egressProxy === undefined ? {} : { egressProxy }),
        ...(dnsServer === undefined ? {} : { dnsServers: dnsServer }),
        // Leaving the member out allows internet access again.
        ...(internet ? {} : { allow_internet_access: false }),
      });
    }
    await show(client, sandboxID, output);
    return 0;
  });
}

async function show(client: SvcClient, sandboxID: string, output: OutputFormat | undefined): Promise<void> {
  const { network: rules, allowInternetAccess } = await client.get(sandboxID);
  if (outputFormat(output) === "json") {
    printJSON({ sandboxID, allowInternetAccess: allowInternetAccess ?? true, ...rules });
    return;
  }
  const listed = (list: readonly string[] | undefined, none: string) => (list === undefined || list.length === 0 ? none : list.join(", "));
  const isOpen = allowInternetAccess !== false;
  printTable(
    ["RULE", "VALUE"],
    [
      ["internet", isOpen ? "open, but for what is denied" : "closed, but for what is allowed"],
      ["allow out", listed(rules?.allowOut, isOpen ? "all" : "nothing")],
      ["deny out", listed(rules?.denyOut, "nothing beyond private ranges, cloud metadata and this host")],
      ...headersOf(rules?.rules).map((text) => ["header", text]),
      ...(rules?.egressProxy === undefined ? [] : [["egress proxy", proxyText(rules.egressProxy)]]),
      ...(rules?.dnsServers === undefined ? [] : [["dns servers", rules.dnsServers.join(", ")]]),
      ["applications", rules?.allowPublicTraffic === false ? "private: need the traffic access token" : "public"],
      ...(rules?.maskRequestHost === undefined ? [] : [["host header", rules.maskRequestHost]]),
    ],
  );
}

const proxyText = ({ address, username }: { address: string; username?: string | undefined }): string =>
  username === undefined ? address : `${username}@${address}`;

/** Returns each header that rules set, as --rule takes it. */
function headersOf(rules: NonNullable<SandboxDetail["network"]>["rules"]): string[] {
  return Object.entries(rules ?? {}).flatMap(([host, list]) =>
    list.flatMap(({ transform }) => Object.entries(transform?.headers ?? {}).map(([name, value]) => `${host} ${name}: ${value}`)),
  );
}
