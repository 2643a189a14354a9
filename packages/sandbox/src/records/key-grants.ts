// A node's knowledge of an Idempotency-Key: which node may create under it (a grant, numbered by `turn`), and which grants this node has declined.
import { TURNS_OF_A_REGISTRAR } from "@svc/contract/create-keys.ts";

/**
 *   nothing ──register──▶ (self, node, turn) ──register after turn──▶ (self, other node, turn + 1)
 *      └──decline──▶ declined ──register──▶ …      a higher decline by another registrar takes the key from this one
 */
export type KeyGrant = {
  /** The node that grants the key. */
  readonly registrar: string;
  /** The node to which this registrar granted the key, and the grant's number; absent and 0 before the first grant. */
  readonly node?: string | undefined;
  readonly turn: number;
  /** This node has declined all grants up to this number. */
  readonly declined: number;
};

export type Registration = { readonly node?: string | undefined; readonly after?: number | undefined; readonly from?: number | undefined };
export type Registered = { readonly registrar: string; readonly node?: string | undefined; readonly turn?: number | undefined; readonly isSure: boolean };

/** Grants the key. The caller stores `next` before it sends `answer`. `isSure`: no other node can have granted this key without this node's knowledge. */
export function register(
  self: string,
  known: KeyGrant | undefined,
  { node, after, from }: Registration,
  isSure: boolean,
): { readonly answer: Registered | "too many"; readonly next?: KeyGrant } {
  const declined = known?.declined ?? 0;
  if (known !== undefined && known.registrar !== self) return { answer: { registrar: known.registrar, isSure: true } };
  if (known?.node !== undefined) {
    if (node === undefined || after !== known.turn) return { answer: { registrar: self, node: known.node, turn: known.turn, isSure: true } };
    return granted(self, node, Math.max(known.turn, declined) + 1, declined);
  }
  if (node === undefined || (from === undefined && !isSure)) return { answer: { registrar: self, isSure } };
  return granted(self, node, Math.max(from ?? 0, declined, known?.turn ?? 0) + 1, declined);
}

function granted(registrar: string, node: string, turn: number, declined: number): ReturnType<typeof register> {
  // The numbers above belong to another registrar.
  if (turn % TURNS_OF_A_REGISTRAR === 0) return { answer: "too many" };
  return { answer: { registrar, node, turn, isSure: true }, next: { registrar, node, turn, declined } };
}

/** Declines the grants up to `turn`, on a node that has created nothing under the key and is not about to. */
export function decline(known: KeyGrant | undefined, turn: number, registrar: string): KeyGrant {
  const before = known ?? { registrar, turn: 0, declined: 0 };
  const declined = Math.max(before.declined, turn);
  // The registrar that asks has replaced a lost one, whose grants are void.
  const isTaken = before.registrar !== registrar && turn >= before.turn && turn > before.declined;
  return isTaken ? { registrar, turn: 0, declined } : { ...before, declined };
}

/** A client that calls this node directly has no grant; the node may then create, unless a gateway has granted the key to another node. */
export function mayCreate(self: string, known: KeyGrant | undefined, turn: number | undefined): boolean {
  // I52
  if (turn !== undefined) return turn > (known?.declined ?? 0);
  return known === undefined || (known.declined === 0 && (known.node ?? self) === self && known.registrar === self);
}

export const highestGrant = (known: KeyGrant | undefined): number => Math.max(known?.turn ?? 0, known?.declined ?? 0);
