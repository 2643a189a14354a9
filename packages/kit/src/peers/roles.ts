// The roles of a deployment's servers, and the name that a certificate of each role bears.

export const roles = ["gateway", "node", "master", "holder", "indexer", "router", "etcd", "client"] as const;

export type Role = (typeof roles)[number];

/** A certificate with this DNS name is valid for every server of the role, at whatever address it is reached. */
export const roleName = (role: Role): string => `${role}.svc.internal`;
