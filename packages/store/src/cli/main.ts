// `svc store VERB`: the cache store from a terminal; its servers are separate programs.
import { Failure, fail } from "@svc/contract/failures.ts";
import { usageOfPage } from "@svc/contract/help.ts";
import { type Arguments, readArguments, type VerbFlags } from "./arguments.ts";
import { copyKey, moveKey } from "./copy.ts";
import { devices } from "./devices.ts";
import { drain, undrain } from "./drain.ts";
import { helpOf, pageOf } from "./help.ts";
import { clients, replicas, segments, stat, summary } from "./inspect.ts";
import { lead, leader, standbys } from "./lead.ts";
import { list } from "./list.ts";
import { migrations } from "./migrations.ts";
import { get, put } from "./objects.ts";
import { remove } from "./remove.ts";
import { top } from "./top.ts";

type Verb = { readonly flags: VerbFlags; run(args: Arguments): Promise<number> };

const text = { type: "string" } as const;
const yes = { type: "boolean" } as const;
/** The shell completion reads this table as well. */
export const verbs: Readonly<Record<string, Verb>> = {
  put: { flags: { tenant: text, upsert: yes, replicas: text, "nof-replicas": text, segment: text, "soft-pin": yes, "hard-pin": yes }, run: put },
  get: { flags: { tenant: text, force: yes }, run: get },
  ls: { flags: { tenant: text, limit: text, after: text }, run: list },
  stat: { flags: { tenant: text }, run: stat },
  replicas: { flags: { tenant: text }, run: replicas },
  rm: { flags: { tenant: text, match: text, all: yes, force: yes }, run: remove },
  copy: { flags: { tenant: text, to: text }, run: copyKey },
  move: { flags: { tenant: text, from: text, to: text }, run: moveKey },
  drain: { flags: { to: text, concurrency: text, cancel: text, detach: yes }, run: drain },
  undrain: { flags: {}, run: undrain },
  migrations: {
    flags: {
      tenant: text,
      from: text,
      to: text,
      executor: text,
      retries: text,
      domain: text,
      "object-set": text,
      authority: text,
      detach: yes,
      admin: text,
      "admin-token-file": text,
    },
    run: migrations,
  },
  devices: {
    flags: {
      tenant: text,
      owner: text,
      kind: text,
      path: text,
      uuid: text,
      s3: text,
      capacity: text,
      executor: text,
      to: text,
      objects: text,
      force: yes,
      "dry-run": yes,
      alias: text,
      "no-check": yes,
      admin: text,
      "admin-token-file": text,
    },
    run: devices,
  },
  segments: { flags: {}, run: segments },
  clients: { flags: {}, run: clients },
  leader: { flags: {}, run: leader },
  standbys: { flags: {}, run: standbys },
  lead: { flags: { to: text }, run: lead },
  summary: { flags: {}, run: summary },
  top: { flags: { interval: text }, run: top },
};

/** Returns the exit code: 0 done, 1 failed, 2 usage error. */
export async function main(argv: readonly string[]): Promise<number> {
  const [name = "--help", ...rest] = argv;
  if (name === "help" || name === "--help" || name === "-h" || rest.includes("--help") || rest.includes("-h")) {
    process.stdout.write(helpOf(name === "help" ? rest[0] : name));
    return 0;
  }
  try {
    const verb = Object.hasOwn(verbs, name) ? verbs[name] : undefined;
    if (verb === undefined) fail("INVALID_REQUEST", "expected a verb; svc store --help lists them");
    return await verb.run(readArguments(name, rest, verb.flags));
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    process.stderr.write(`svc store ${name}: ${error.message}\n`);
    if (error.name !== "INVALID_REQUEST" || error.details["storeCode"] !== undefined) return 1;
    process.stderr.write(usageOfPage(pageOf(name), Object.hasOwn(verbs, name) ? `svc store ${name} --help` : "svc store --help"));
    return 2;
  }
}

if (process.argv[1] === import.meta.filename) process.exitCode = await main(process.argv.slice(2));
