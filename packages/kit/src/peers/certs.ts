// `svc certs`: a small certificate authority for the servers of one deployment.
import { X509Certificate } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { isIP } from "node:net";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { Failure } from "@svc/contract/failures.ts";
import { type HelpPage, renderHelp, usageOfPage } from "@svc/contract/help.ts";
import { homeDirectory } from "@svc/contract/home.ts";
import { printJSON, printTable } from "@svc/contract/table.ts";
import { DeploymentAuthority, type Issued, isDue } from "./authority.ts";
import { commonName, namesOf, peerFiles, readPair } from "./peer-certificates.ts";
import { type Role, roleName, roles } from "./roles.ts";

const DEFAULT_DAYS = 90;
const MAX_DAYS = 3_650;
const DAY_MS = 24 * 3_600_000;
const EXIT_FAILURE = 1;
const EXIT_USAGE = 2;

const page: HelpPage = {
  usage: ["svc certs init", "svc certs issue ROLE --out DIR [--host HOST]…", "svc certs rotate DIR… | --authority | --drop-old", "svc certs show DIR…"],
  about: "make, renew and show the certificates by which the servers of a deployment know each other (mutual TLS)",
  commands: [
    ["init", "make the deployment's authority"],
    ["issue ROLE", `make a certificate for a server: ${roles.join(", ")}`],
    ["rotate DIR…", "replace certificates by new ones with the same names; running servers read them within seconds"],
    ["rotate --authority", "replace the authority itself; afterwards rotate every certificate, in any order"],
    ["rotate --drop-old", "end the trust in the authority before; afterwards rotate every certificate"],
    ["show DIR…", "print what certificates are for and when they expire; exit code 1 if one has expired"],
  ],
  options: [
    ["--from DIR", "the authority's directory (default: authority in the home); keep it on one machine, and a backup"],
    ["--out DIR", "where tls.crt, tls.key and ca.crt go; give it to the server by --peer-certs"],
    ["--host HOST", "a name or address at which the server is reached (repeat for more); the role's own name is always there"],
    ["--name NAME", "the subject, which messages name (default: the role)"],
    ["--days N", `the validity (default ${DEFAULT_DAYS})`],
    ["--due", "rotate: only certificates in the last third of their validity, for a timer"],
    ["-o, --output FORMAT", "table or json (table)"],
  ],
  examples: [
    "svc certs init",
    "svc certs issue node --host 10.0.0.3 --name n3 --out certs/n3",
    "svc certs rotate --due certs/*",
    "svc node --peer-certs certs/n3 --etcd http://10.0.0.2:2379",
  ],
};

class Usage extends Error {}

const options = {
  from: { type: "string" },
  out: { type: "string" },
  host: { type: "string", multiple: true },
  name: { type: "string" },
  days: { type: "string" },
  due: { type: "boolean" },
  authority: { type: "boolean" },
  "drop-old": { type: "boolean" },
  output: { type: "string", short: "o" },
  help: { type: "boolean", short: "h" },
} as const;

type Values = ReturnType<typeof parseArgs<{ options: typeof options }>>["values"];

export async function main(argv: readonly string[]): Promise<number> {
  try {
    const { values, positionals } = parseArgs({ args: [...argv], options, allowPositionals: true });
    if (values.help === true) {
      process.stdout.write(renderHelp(page));
      return 0;
    }
    const [verb, ...words] = positionals;
    if (values.output !== undefined && values.output !== "table" && values.output !== "json")
      throw new Usage(`--output: expected table or json, got '${values.output}'`);
    return run(verb, words, values, Date.now());
  } catch (error) {
    const isUsage = error instanceof Usage || (error as NodeJS.ErrnoException).code?.startsWith("ERR_PARSE_ARGS") === true;
    if (!isUsage && !(error instanceof Failure)) throw error;
    process.stderr.write(`svc certs: ${(error as Error).message}\n${isUsage ? usageOfPage(page, "svc certs --help") : ""}`);
    return isUsage ? EXIT_USAGE : EXIT_FAILURE;
  }
}

function run(verb: string | undefined, words: readonly string[], values: Values, nowMs: number): number {
  const directory = values.from ?? join(homeDirectory(), "authority");
  if (verb === "init") {
    printAuthority(DeploymentAuthority.init(directory, nowMs), directory);
    return 0;
  }
  if (verb === "issue") return issue(new DeploymentAuthority(directory), words, values, nowMs);
  if (verb === "rotate") return rotate(new DeploymentAuthority(directory), directory, words, values, nowMs);
  if (verb === "show") return show(words, values, nowMs);
  throw new Usage(`expected init, issue, rotate or show, got ${verb === undefined ? "nothing" : `'${verb}'`}`);
}

function issue(authority: DeploymentAuthority, words: readonly string[], { out, host = [], name, days }: Values, nowMs: number): number {
  const [role, ...more] = words;
  if (!isRole(role) || more.length > 0) throw new Usage(`expected one role of ${roles.join(", ")}, got '${words.join(" ")}'`);
  if (out === undefined) throw new Usage("expected --out DIR for the files of the certificate");
  for (const each of host)
    if (isIP(each) === 0 && !/^(\*\.)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/i.test(each))
      throw new Usage(`--host: expected a host name or an address, got '${each}'`);
  const names = [roleName(role), ...host];
  printIssued([authority.issue(out, name ?? role, names, daysOf(days), nowMs)]);
  return 0;
}

function rotate(authority: DeploymentAuthority, from: string, words: readonly string[], values: Values, nowMs: number): number {
  const chosen = [words.length > 0, values.authority === true, values["drop-old"] === true].filter(Boolean).length;
  if (chosen !== 1) throw new Usage("expected directories of certificates, --authority, or --drop-old");
  if (words.length === 0) {
    printAuthority(values.authority === true ? authority.rotate(nowMs) : authority.dropOld(), from);
    process.stderr.write("Now rotate every certificate (svc certs rotate DIR…), in any order, and put the files where the servers read them.\n");
    return 0;
  }
  const due = words.filter((each) => values.due !== true || isDue(readable(each).certificate, nowMs));
  printIssued(due.map((each) => authority.reissue(each, nowMs)));
  return 0;
}

function show(words: readonly string[], { output }: Values, nowMs: number): number {
  if (words.length === 0) throw new Usage("expected directories of certificates");
  const rows = words.map((directory) => {
    const certificate = existsSync(join(directory, "ca.key")) ? new X509Certificate(readFileSync(join(directory, "ca.crt"))) : readable(directory).certificate;
    const { subject, issuer, subjectAltName, validToDate } = certificate;
    return {
      directory,
      subject: commonName(subject),
      names: namesOf(subjectAltName ?? ""),
      signedBy: commonName(issuer),
      expiresAt: validToDate.toISOString(),
      daysLeft: Math.floor((validToDate.getTime() - nowMs) / DAY_MS),
    };
  });
  if (output === "json") printJSON(rows);
  else
    printTable(
      ["DIRECTORY", "SUBJECT", "NAMES", "SIGNED BY", "EXPIRES", "DAYS LEFT"],
      rows.map((row) => [row.directory, row.subject, row.names.join(","), row.signedBy, row.expiresAt, String(row.daysLeft)]),
    );
  return rows.some(({ daysLeft }) => daysLeft < 0) ? EXIT_FAILURE : 0;
}

/** @throws SETTING_INVALID. */
function readable(directory: string): ReturnType<typeof readPair> {
  try {
    return readPair(directory);
  } catch (error) {
    throw new Failure("SETTING_INVALID", (error as Error).message, { cause: error });
  }
}

const isRole = (word: string | undefined): word is Role => (roles as readonly (string | undefined)[]).includes(word);

function daysOf(text: string | undefined): number {
  const days = text === undefined ? DEFAULT_DAYS : Number(text);
  if (!Number.isInteger(days) || days < 1 || days > MAX_DAYS) throw new Usage(`--days: expected 1 to ${MAX_DAYS}, got '${text}'`);
  return days;
}

function printAuthority({ certificates }: DeploymentAuthority, directory: string): void {
  const trusted = certificates.map(({ subject, validTo }) => `${commonName(subject)}, until ${validTo}`);
  process.stdout.write(`${directory}: ${trusted.join("; trusted as well: ")}\n`);
}

function printIssued(issued: readonly Issued[]): void {
  for (const { directory, subject, names, until } of issued)
    process.stdout.write(`${directory}: ${Object.values(peerFiles).join(", ")} of "${subject}" for ${names.join(", ")}, until ${until.toISOString()}\n`);
}
