// Telling the master which files a disk has, and what its answers mean for them.
import { codes } from "../../rpc/codes.ts";
import type { StoredFile } from "../../rpc/shapes.ts";
import type { Session } from "../session/session.ts";

/**
 * What a master that leads and has read its log says of a file that no object has. After any other refusal (a standby's, a full log's,
 * of a disk that is not mounted there) the file stays, and the master is asked again.
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

/** The task of a file whose order came from another master than the one that is told: nobody but its order's checksum says what is in it. */
export const UNKNOWN_TASK = 0xffff_ffff;

/** `isProven`: it has the checksum that its order named. */
export type Written = StoredFile & { readonly isProven: boolean };

export type Kept<File extends StoredFile> = {
  /** That no object has. */
  readonly unwanted: readonly File[];
  /** Of which the master said nothing that counts; `code` is the first such answer. */
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
 * The same of files that were written since. A master that did not order them (the one that did is dead, and its log may be) is told of those
 * whose content is proven once more: it takes one whose object it has, or surely never had.
 */
export async function keepWritten(member: Member, diskID: string, batch: readonly Written[]): Promise<Kept<Written>> {
  const first = await keepFiles(member, diskID, batch);
  const again = first.unwanted.filter(({ isProven }) => isProven);
  if (again.length === 0) return first;
  const told = again.map((file) => ({ ...file, task: UNKNOWN_TASK }));
  const second = await keepFiles(member, diskID, told);
  return {
    unwanted: [...first.unwanted.filter(({ isProven }) => !isProven), ...second.unwanted],
    waiting: [...first.waiting, ...second.waiting],
    code: first.waiting.length > 0 ? first.code : second.code,
  };
}
