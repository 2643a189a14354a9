// What one node knows of an Idempotency-Key: who may create under it, and in which turns it itself may not; each move is pure.
import { TURNS_OF_A_REGISTRAR } from "@svc/contract/create-keys.ts";

/**
 *   nothing ──register──▶ (self, node, turn) ──register after turn──▶ (self, other node, turn + 1)
 *      └──decline──▶ declined ──register──▶ …      a higher decline by another registrar takes the key from this one
 */
export type KeyTurn = {
  /** The node that decides. */
  readonly registrar: string;
  /** Of this registrar: the node that may create, in this turn; 0 and absent before the first. */
  readonly node?: string | undefined;
  readonly turn: number;
  /** This node creates nothing in turns up to this one. */
  readonly declined: number;
};

export type Registration = { readonly node?: string | undefined; readonly after?: number | undefined; readonly from?: number | undefined };
export type Registered = { readonly registrar: string; readonly node?: string | undefined; readonly turn?: number | undefined; readonly isSure: boolean };

/** `next` is to be kept before `answer` is given. `isSure`: no other node has decided about keys that this one may lack. */
export function register(
  self: string,
  known: KeyTurn | undefined,
  { node, after, from }: Registration,
  isSure: boolean,
): { readonly answer: Registered | "too many"; readonly next?: KeyTurn } {
  const declined = known?.declined ?? 0;
  if (known !== undefined && known.registrar !== self) return { answer: { registrar: known.registrar, isSure: true } };
  if (known?.node !== undefined) {
    if (node === undefined || after !== known.turn) return { answer: { registrar: self, node: known.node, turn: known.turn, isSure: true } };
    return given(self, node, Math.max(known.turn, declined) + 1, declined);
  }
  if (node === undefined || (from === undefined && !isSure)) return { answer: { registrar: self, isSure } };
  return given(self, node, Math.max(from ?? 0, declined, known?.turn ?? 0) + 1, declined);
}

function given(registrar: string, node: string, turn: number, declined: number): ReturnType<typeof register> {
  // Above this another registrar's turns may begin.
  if (turn % TURNS_OF_A_REGISTRAR === 0) return { answer: "too many" };
  return { answer: { registrar, node, turn, isSure: true }, next: { registrar, node, turn, declined } };
}

/** For a node that has created nothing under the key and is not about to. */
export function decline(known: KeyTurn | undefined, turn: number, registrar: string): KeyTurn {
  const before = known ?? { registrar, turn: 0, declined: 0 };
  const declined = Math.max(before.declined, turn);
  // One that was asked because another registrar is lost: what that one had given out is over.
  const isTaken = before.registrar !== registrar && turn >= before.turn && turn > before.declined;
  return isTaken ? { registrar, turn: 0, declined } : { ...before, declined };
}

/** Without a turn a client asks this node itself, which may create where no gateway has been told otherwise. */
export function mayCreate(self: string, known: KeyTurn | undefined, turn: number | undefined): boolean {
  // I52
  if (turn !== undefined) return turn > (known?.declined ?? 0);
  return known === undefined || (known.declined === 0 && (known.node ?? self) === self && known.registrar === self);
}

export const highestTurn = (known: KeyTurn | undefined): number => Math.max(known?.turn ?? 0, known?.declined ?? 0);
