// One line of `svc doctor --deployment`: what is wrong, where, how bad it is, and the command that fixes it.

/** critical: requests fail or data is at risk now; warning: they will if no one acts; note: a state that someone chose, or that could not be examined. */
export const severities = ["critical", "warning", "note"] as const;
export type Severity = (typeof severities)[number];

export type Finding = {
  readonly severity: Severity;
  /** The machine: a node's id, or a kind and an address. */
  readonly where: string;
  readonly says: string;
  /** A command line, or what to do where no command does it. */
  readonly fix: string;
};

/** One server that was asked. */
export type Asked = { readonly kind: Kind; readonly url: string; readonly answered: boolean };
export type Kind = "gateway" | "node" | "etcd" | "store master" | "store service" | "store admin" | "metadata" | "indexer" | "router";

export type Examined = { readonly asked: readonly Asked[]; readonly findings: readonly Finding[] };

export function merged(parts: readonly Examined[]): Examined {
  return { asked: parts.flatMap(({ asked }) => asked), findings: parts.flatMap(({ findings }) => findings) };
}

/** Sorts by severity; findings of one severity keep the order of the machines. */
export function bySeverity(findings: readonly Finding[]): Finding[] {
  return severities.flatMap((severity) => findings.filter((finding) => finding.severity === severity));
}
