// Announces a disk's files to the master, and interprets its answers.
import { codes } from "../../rpc/codes.ts";
import type { StoredFile } from "../../rpc/shapes.ts";
import type { Session } from "../session/session.ts";

/**
 * The answers by which a leading master that has read its log refuses a file that no object has. After any other refusal (of a standby, with a full
 * log, for a disk that is not mounted) the file stays, and the master is asked again.
 */
const UNWANTED: readonly number[] = [
  codes.INVALID_PARAMS,
  codes.INVALID_WRITE,
  codes.OBJECT_NOT_FOUND,
  codes.OBJECT_ALREADY_EXISTS,
  codes.REPLICA_ALREADY_EXISTS,
  codes.CHECKSUM_MISMATCH,
  codes.TENANT_NOT_REGISTERED,
];

/** The task number for a file that another master ordered: only the checksum in that order identifies its content. */
export const UNKNOWN_TASK = 0xffff_ffff;

/** `isProven`: its bytes have the checksum that its order named. */
export type Written = StoredFile & { readonly isProven: boolean };

export type Kept<File extends StoredFile> = {
  /** Files that belong to no object. */
  readonly unwanted: readonly File[];
  /** Files without a decisive answer; `code` is the first such answer. */
  readonly waiting: readonly File[];
  readonly code: number;
};

type Member = Pick<Session, "calls" | "clientID">;

export async function keepFiles<File extends StoredFile>({ calls, clientID }: Member, diskID: string, batch: readonly File[]): Promise<Kept<File>> {
  const answers = await calls.call("KeepFiles", clientID, diskID, batch);
  const unwanted: File[] = [];
  const waiting: File[] = [];
  let code: number = codes.OK;
  batch.forEach((file, at) => {
    const answer = answers[at] ?? { ok: false, code: codes.UNAVAILABLE_IN_CURRENT_MODE };
    if (answer.ok) return;
    if (UNWANTED.includes(answer.code)) {
      unwanted.push(file);
      return;
    }
    if (waiting.length === 0) code = answer.code;
    waiting.push(file);
  });
  return { unwanted, waiting, code };
}

/**
 * Announces files that were written on an order. A master that did not give the order (the one that did may be dead, its log lost) is asked once more
 * about files with proven content: it accepts a file whose object has the same bytes or certainly never existed.
 */
export async function keepWritten(member: Member, diskID: string, batch: readonly Written[]): Promise<Kept<Written>> {
  const first = await keepFiles(member, diskID, batch);
  const again = first.unwanted.filter(({ isProven }) => isProven);
  if (again.length === 0) return first;
  const retried = again.map((file) => ({ ...file, task: UNKNOWN_TASK }));
  const second = await keepFiles(member, diskID, retried);
  return {
    unwanted: [...first.unwanted.filter(({ isProven }) => !isProven), ...second.unwanted],
    waiting: [...first.waiting, ...second.waiting],
    code: first.waiting.length > 0 ? first.code : second.code,
  };
}
