// The kinds of ids that shells complete, and which arguments of which verbs take them.

export const idKinds = ["sandboxes", "templates", "snapshots", "nodes", "volumes"] as const;
export type IDKind = (typeof idKinds)[number];

/** Returns the kinds for a verb, given by its words, and the name of its argument. */
export function idKindsOf(words: string, argument: string): readonly IDKind[] {
  if (words.startsWith("volume ")) return ["volumes", "volume[:path]", "volume:path"].includes(argument) ? ["volumes"] : [];
  if (words.startsWith("nodes ")) return argument === "id" ? ["nodes"] : [];
  if (words.startsWith("snapshot ") && (argument === "name" || argument === "names") && words !== "snapshot create") return ["snapshots"];
  if (argument === "template" || argument === "templates") return words === "start" ? ["templates", "snapshots"] : ["templates"];
  if (words === "template tag" && argument === "name[:tag]") return ["templates"];
  return argument === "id" || argument === "ids" ? ["sandboxes"] : [];
}
