// The less common kinds of abuse, and nearly all kinds on runc.
import { type AbuseName, abuses } from "../src/abuse.ts";
import { abuseSuite } from "./abuse.suite.ts";

const quick: readonly AbuseName[] = ["forks", "memory", "disk", "output", "processor"];
/** The host's kernel counts inotify instances per user, and root inside runc is the host's root, so this abuse is not contained. */
const unfencedOnRunc: readonly AbuseName[] = ["rootWatches"];
const all = Object.keys(abuses) as AbuseName[];

abuseSuite(
  "gvisor",
  all.filter((name) => !quick.includes(name)),
);
abuseSuite(
  "runc",
  all.filter((name) => !unfencedOnRunc.includes(name)),
);
