// The texts that `svc store --help` and `svc store VERB --help` print: each verb's forms, flags and an example.
import { type HelpEntry, type HelpPage, renderHelp } from "@svc/contract/help.ts";

type Entry = HelpEntry;
type Page = { readonly forms: readonly Entry[]; readonly flags?: readonly Entry[]; readonly example: string; readonly asksAdmin?: true };

const DRY_RUN: Entry = ["--dry-run", "change nothing, and show what would happen"];
const TENANT: Entry = ["--tenant NAME", "tenant of the keys"];
const DETACH: Entry = ["--detach", "return at once instead of waiting"];

const pages: Readonly<Record<string, Page>> = {
  put: {
    forms: [["put KEY [FILE]", "store a file, or stdin; an existing key keeps its value"]],
    flags: [
      ["--upsert", "replace the value of an existing key"],
      ["--replicas N", "how many segments get it (1); fewer if fewer have room"],
      ["--nof-replicas N", "how many NOF segments get it as well (none); the master's enable_nof allows them"],
      ["--segment NAME", "preferred segment, as svc store segments lists it; another one if it has no room"],
      ["--soft-pin, --hard-pin", "evict it last, or never"],
      TENANT,
    ],
    example: "svc store put models/a weights.bin --replicas 2",
  },
  get: {
    forms: [["get KEY [FILE]", "write the value to stdout or a file"]],
    flags: [["--force", "overwrite an existing file"], TENANT],
    example: "svc store get models/a copy.bin",
  },
  ls: {
    forms: [["ls [PREFIX]", "list keys with their size and holders"]],
    flags: [["--limit N", "how many keys (1000)"], ["--after CURSOR", "continue where the previous page ended"], TENANT],
    example: "svc store ls models/ --limit 20",
  },
  stat: { forms: [["stat KEY", "size, checksum and replicas of a key, or why it does not exist"]], flags: [TENANT], example: "svc store stat models/a" },
  replicas: { forms: [["replicas KEY", "where the bytes of a key are"]], flags: [TENANT], example: "svc store replicas models/a" },
  rm: {
    forms: [["rm KEY...", "remove keys"]],
    flags: [
      ["--match PATTERN", "every key that matches a regular expression"],
      ["--all", "every key"],
      ["--force", "also keys that readers have leased"],
      TENANT,
    ],
    example: "svc store rm --match '^models/' --force",
  },
  copy: {
    forms: [["copy KEY --to SEGMENT[,SEGMENT]", "copy a key to more segments, and wait"]],
    flags: [TENANT],
    example: "svc store copy models/a --to 10.0.0.7:14001",
  },
  move: {
    forms: [["move KEY --from SEGMENT --to SEGMENT", "move a replica to another segment, and wait"]],
    flags: [TENANT],
    example: "svc store move models/a --from 10.0.0.7:14001 --to 10.0.0.8:14001",
  },
  drain: {
    forms: [["drain SEGMENT...", "move all objects off segments, and wait"]],
    flags: [
      ["--to SEGMENT[,SEGMENT]", "target segments (any with room)"],
      ["--concurrency N", "objects in progress at a time (4)"],
      DETACH,
      ["--cancel JOB", "cancel a job; its segments take objects again"],
    ],
    example: "svc store drain 10.0.0.7:14001",
  },
  undrain: {
    forms: [["undrain SEGMENT...", "put segments that a drain emptied, or could not empty, back into use"]],
    example: "svc store undrain 10.0.0.7:14001",
  },
  migrations: {
    forms: [
      ["migrations [TASK]", "list copies and moves of the admin server, or show one"],
      ["migrations copy|move KEY --from SEGMENT --to SEGMENT[,SEGMENT] --executor STABLE-ID", "start one, and wait"],
    ],
    flags: [
      ["--executor STABLE-ID", "the client that moves the bytes, as svc store clients lists it"],
      ["--retries N", "maximum number of retries after the first attempt (5)"],
      ["--domain NAME, --object-set NAME", "namespace of the key (default)"],
      ["--authority ID", "the stable id of the master to ask first (store-master)"],
      DETACH,
      TENANT,
    ],
    example: "svc store migrations move models/a --from 10.0.0.7:14001 --to 10.0.0.8:14001 --executor second",
    asksAdmin: true,
  },
  devices: {
    forms: [
      ["devices [DEVICE]", "list devices of the cold tier, or show the current state of one"],
      ["devices create DEVICE --owner STABLE-ID --path FOLDER | --uuid UUID", "define a folder on an owner's host as a device"],
      ["devices create DEVICE --owner STABLE-ID --s3 s3://BUCKET/PREFIX", "the same in a bucket that the owner's settings reach"],
      ["devices register|enable|disable|drain|unregister DEVICE", "start serving it; allow or stop new objects; empty it; release it"],
      ["devices blockers|manual-gc|manual-free|orphan-quarantine DEVICE", "show what is stored there, or make room manually"],
      ["devices offload STABLE-ID", "copy objects from an owner's memory to its device, and wait"],
    ],
    flags: [
      ["--kind ssd|nfs, --capacity BYTES", "of create: its kind (ssd), and how much objects may use (nine tenths of the file system)"],
      ["--alias NAME", "of create: a name for people; the other commands take it in place of DEVICE while no other device has it"],
      ["--no-check", "of create: do not check with the owner that it can use the folder"],
      ["--executor STABLE-ID, --to SEGMENT[,SEGMENT]", "of drain: who moves objects that are nowhere else, and to which segments"],
      ["--force", "of unregister: drop copies of objects that are in memory too"],
      ["--objects N", "of offload: maximum number of objects (64)"],
      DRY_RUN,
      ["--tenant NAME", "devices of one tenant, for its objects alone"],
    ],
    example: "svc store devices create cold-1 --owner first --path /mnt/ssd",
    asksAdmin: true,
  },
  leader: { forms: [["leader", "with several masters: which one leads"]], example: "svc store leader" },
  standbys: { forms: [["standbys", "with several masters: which ones can take over"]], example: "svc store standbys" },
  lead: { forms: [["lead --to NAME", "hand the lead over to a standby that is in sync; nothing is lost"]], example: "svc store lead --to bob" },
  segments: { forms: [["segments", "the memory of each holder, and how full it is"]], example: "svc store segments" },
  clients: { forms: [["clients", "clients that hold memory, with their stable ids"]], example: "svc store clients" },
  summary: { forms: [["summary", "the whole store at a glance"]], example: "svc store summary" },
  top: {
    forms: [["top", "live view: operations, latency, keys, bytes, evictions, holders; in a pipe, one look, or one after another with --output json"]],
    flags: [["--interval SECONDS", "seconds between updates (1)"]],
    example: "svc store top",
  },
};

const shared: readonly Entry[] = [
  [
    "--master HOST:PORT",
    "the master's RPC, or etcd://HOST:PORT[;HOST:PORT...] for the current leader (default $SVC_STORE_MASTER, else this machine's own master)",
  ],
  ["--url URL", "the master's HTTP (default $SVC_STORE_URL, else port 9003 next to RPC port 50051, else that of this machine's own master)"],
  ["--token-file FILE", "token, if the master requires one (default $SVC_STORE_TOKEN)"],
  ["--metadata WHERE", "the holders' metadata service (default P2PHANDSHAKE: none)"],
  ["--cluster NAME", "name of the cluster, with etcd:// (svc_cluster)"],
  ["--brand WORD", "brand word of the masters' RPC (svc)"],
  ["--output table|json", "how to print (a table)"],
];
const ofAdmin: readonly Entry[] = [
  ["--admin URL", "the admin server (default $SVC_STORE_ADMIN_URL, else, for this machine's own master, this machine's own or http://127.0.0.1:18080)"],
  ["--admin-token-file FILE", "its token (default $SVC_STORE_ADMIN_TOKEN)"],
];

/** Returns the help page of one verb, or the general page for an unknown one. */
export function pageOf(verb: string | undefined): HelpPage {
  const page = verb !== undefined && Object.hasOwn(pages, verb) ? pages[verb] : undefined;
  if (page === undefined) return wholePage;
  const { forms, flags = [], example, asksAdmin } = page;
  const [only] = forms;
  return {
    usage: forms.map(([form]) => `svc store ${withOptions(form)}`),
    about: forms.length === 1 && only !== undefined ? only[1] : "",
    options: [...flags, ...(asksAdmin === true ? ofAdmin : []), ...shared],
    examples: [example],
    ...(forms.length === 1 ? {} : { about: forms.map(([form, does]) => `${form}\n    ${does}`).join("\n") }),
  };
}

export const helpOf = (verb: string | undefined): string => renderHelp(pageOf(verb));

/** Options are accepted before and after a verb's operands. */
const withOptions = (form: string): string => form.replace(/^(\S+)/, "$1 [options]");

const wholePage: HelpPage = {
  usage: ["svc store VERB [options]"],
  about: "read, write and inspect a cache store",
  options: [...shared, ...ofAdmin],
  commands: Object.values(pages).flatMap(({ forms }) => forms),
  more: "svc store VERB --help shows the options of a verb, and an example.\nsvc store master | service | admin runs a server in the foreground, each with its own --help.",
  examples: ["svc store put models/a weights.bin --replicas 2", "svc store ls models/ --limit 20", "svc store top"],
};
