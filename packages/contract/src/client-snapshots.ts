// The client's side of snapshot files: bodies are streamed in both directions.
import type { Calls } from "./client-calls.ts";
import { fail } from "./failures.ts";
import { type SnapshotInfo, snapshotInfo } from "./lifecycle.ts";

export type ExportedSnapshot = { readonly snapshotID: string; readonly sizeBytes: number; readonly body: AsyncIterable<Uint8Array> };

const noSignal = () => new AbortController().signal;

export async function exportSnapshot(calls: Calls, reference: string, options: { withBase?: boolean; signal?: AbortSignal }): Promise<ExportedSnapshot> {
  const path = `/snapshots/${encodeURIComponent(reference)}/export?base=${options.withBase === true}`;
  const { headers, body } = await calls.open(path, {}, options.signal ?? noSignal());
  if (body === null) fail("INTERNAL", `${calls.baseURL} sent no file`);
  return { snapshotID: headers.get("x-snapshot-id") ?? reference, sizeBytes: Number(headers.get("content-length")), body };
}

export async function importSnapshot(
  calls: Calls,
  file: AsyncIterable<Uint8Array>,
  { name, signal }: { name?: string | undefined; signal?: AbortSignal },
): Promise<SnapshotInfo & { isNew: boolean }> {
  const query = name === undefined ? "" : `?${new URLSearchParams({ name })}`;
  const answer = await calls.send(`/snapshots/import${query}`, file, signal ?? noSignal());
  return { ...snapshotInfo.parse(await answer.json()), isNew: answer.status === 201 };
}
