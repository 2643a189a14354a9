// Reads where engines are found, as `--discover` says it.
import { fail } from "@svc/contract/failures.ts";
import { openDnsSource, openSrvSource } from "./dns-source.ts";
import { type EngineEntry, engineName, engineUrl, named } from "./engine-entry.ts";
import { openEtcdSource } from "./etcd-source.ts";
import { openFileSource } from "./file-source.ts";
import { openKubernetesSource } from "./kubernetes-source.ts";
import type { OpenSource } from "./source.ts";

const forms =
  "http://HOST:PORT, NAME=http://HOST:PORT, file:PATH, dns:HOST:PORT, srv:_SERVICE._tcp.NAME, kubernetes:NAMESPACE?selector=LABEL=VALUE or etcd:http://HOST:PORT?prefix=KEY";

/** Reads one `--discover`. @throws SETTING_INVALID. */
export function readSource(text: string): OpenSource {
  const [, scheme = "", rest = ""] = /^(file|dns|srv|kubernetes|etcd):(.*)$/s.exec(text) ?? [];
  const bad = (why: string): never => fail("SETTING_INVALID", `--discover ${text}: ${why}`);
  if (scheme === "file") return rest === "" ? bad("expected file:PATH") : (events) => openFileSource(rest, events);
  if (scheme !== "") {
    const at = rest.indexOf("?");
    const address = at < 0 ? rest : rest.slice(0, at);
    const options = new URLSearchParams(at < 0 ? "" : rest.slice(at + 1).replaceAll("+", "%2B"));
    const open = { dns: openDnsSource, srv: openSrvSource, etcd: openEtcdSource, kubernetes: openKubernetesSource }[scheme] ?? openKubernetesSource;
    return open(address, options, bad);
  }
  const [, name, url = ""] = /^(?:([^=/]*)=)?(.*)$/s.exec(text) ?? [];
  const address = engineUrl.safeParse(url);
  if (!address.success) return bad(`expected ${forms}`);
  if (name !== undefined && !engineName.safeParse(name).success) return bad("NAME: expected letters, digits, '.', '_', ':' and '-'");
  const entry: EngineEntry = { url: address.data, ...(name === undefined ? {} : { name }) };
  return ({ onEntries }) => {
    onEntries([named(entry)]);
    return { async close() {} };
  };
}
