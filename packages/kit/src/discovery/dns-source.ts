// Engines from DNS: each address of one name, such as a headless service, or each target of its SRV records, which say the port as well.
import { lookup, Resolver } from "node:dns/promises";
import { named } from "./engine-entry.ts";
import { Repeat } from "./repeat.ts";
import { type OpenSource, onlyOptions, portOf } from "./source.ts";

const LOOK_MS = 5_000;
/** An answer without an address: the name has none now. */
const NOBODY = ["ENOTFOUND", "ENODATA"];

/** `srv:_http._tcp.NAME`: the records' targets and ports. */
export function openSrvSource(name: string, options: URLSearchParams, bad: (why: string) => never): OpenSource {
  if (!/^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+\.?$/.test(name)) bad("expected srv:_SERVICE._tcp.NAME");
  return openRecords(name, options, bad, async (resolver) => {
    const records = await resolver.resolveSrv(name);
    // A single record with an empty target says that the service is not offered.
    return [...new Set(records.filter((one) => one.name !== "" && one.name !== ".").map((one) => `${one.name.replace(/\.$/, "")}:${one.port}`))];
  });
}

export function openDnsSource(address: string, options: URLSearchParams, bad: (why: string) => never): OpenSource {
  const [, host = "", port = ""] = /^([A-Za-z0-9_.-]+):(\d{1,5})$/.exec(address) ?? [];
  if (host === "" || Number(port) < 1 || Number(port) > 65_535) bad("expected dns:HOST:PORT");
  return openRecords(host, options, bad, async (resolver, ownServer) => {
    const addresses = ownServer ? await asked(resolver, host) : (await lookup(host, { all: true })).map((one) => one.address);
    return addresses.map((one) => `${one.includes(":") ? `[${one}]` : one}:${port}`);
  });
}

/** `look` returns HOST:PORT of each engine. */
function openRecords(
  host: string,
  options: URLSearchParams,
  bad: (why: string) => never,
  look: (resolver: Resolver, ownServer: boolean) => Promise<string[]>,
): OpenSource {
  onlyOptions(options, ["events_port", "replay_port", "server", "every_ms"], bad);
  const eventsPort = portOf(options, "events_port", undefined, bad);
  const replayPort = portOf(options, "replay_port", undefined, bad);
  const everyMs = Number(options.get("every_ms") ?? LOOK_MS);
  if (!(everyMs >= 10 && everyMs <= 3_600_000)) bad("every_ms: expected 10 to 3600000");
  const ports = { ...(eventsPort === undefined ? {} : { events_port: eventsPort }), ...(replayPort === undefined ? {} : { replay_port: replayPort }) };
  const server = options.get("server");
  return ({ onEntries, onTrouble }) => {
    const resolver = new Resolver({ timeout: 2_000, tries: 2 });
    if (server !== null) resolver.setServers([server]);
    let seen: string | undefined;
    return new Repeat(async () => {
      try {
        const found = (await look(resolver, server !== null)).sort();
        if (found.join() !== seen) onEntries(found.map((one) => named({ url: `http://${one}`, ...ports })));
        seen = found.join();
      } catch (error) {
        seen = undefined;
        onTrouble(`${host}: ${(error as Error).message}`);
      }
      return everyMs;
    });
  };
}

async function asked(resolver: Resolver, host: string): Promise<string[]> {
  const answers = await Promise.all([resolver.resolve4(host), resolver.resolve6(host)].map((asking) => asking.catch((error: NodeJS.ErrnoException) => error)));
  const failed = answers.find((answer) => answer instanceof Error && !NOBODY.includes(answer.code ?? ""));
  if (failed !== undefined) throw failed as Error;
  const found = answers.flatMap((answer) => (answer instanceof Error ? [] : answer));
  // DNS answers alike for a name that was removed, for a misspelt one, and while its own server is starting, so this is an error.
  if (found.length === 0) throw answers.find((answer) => answer instanceof Error) ?? new Error("no address");
  return found;
}
