// The client's volume operations: make, list and delete volumes, and read and write their content without a sandbox.
import { z } from "zod";
import { failureOf, noAnswer } from "./call.ts";
import type { Calls } from "./client-calls.ts";
import type { Input, Output } from "./operation.ts";
import * as api from "./volumes.ts";

export type OpenVolume = Output<typeof api.getVolume>;

/** Every method throws Failure: VOLUME_NOT_FOUND, and for content VOLUME_PATH_NOT_FOUND. A reference is an id or a name. */
export class VolumeClient {
  readonly #calls: Calls;

  constructor(calls: Calls) {
    this.#calls = calls;
  }

  /** Makes an empty volume; `sizeMB` in MiB. VOLUME_EXISTS, DISK_FULL. */
  create(request: Input<typeof api.createVolume>): Promise<OpenVolume> {
    return this.#calls.call(api.createVolume, request);
  }

  list(): Promise<api.Volume[]> {
    return this.#calls.call(api.listVolumes, {});
  }

  /** Returns a volume with the token of its content, which the methods below need. */
  open(reference: string): Promise<OpenVolume> {
    return this.#calls.call(api.getVolume, { volumeID: reference });
  }

  /** Deletes a volume with all its files. VOLUME_IN_USE while a sandbox mounts it. */
  async delete(reference: string): Promise<void> {
    await this.#calls.call(api.deleteVolume, { volumeID: reference });
  }

  async files(volume: OpenVolume, path: string, depth = 1): Promise<api.VolumeStat[]> {
    const answer = await this.#content(volume, "dir", { path, depth: String(depth) }, { method: "GET" });
    return z.array(api.volumeStat).parse(await answer.json());
  }

  /** Reads a file as it arrives. */
  async read(volume: OpenVolume, path: string): Promise<AsyncIterable<Uint8Array>> {
    const answer = await this.#content(volume, "file", { path }, { method: "GET" });
    return answer.body ?? ReadableStream.from([]);
  }

  /** Writes a file, which appears when it is complete; missing parents are created. DISK_FULL. */
  async write(volume: OpenVolume, path: string, body: AsyncIterable<Uint8Array>, metadata: api.VolumeMetadata = {}): Promise<api.VolumeStat> {
    const owned = Object.fromEntries(Object.entries(metadata).flatMap(([name, value]) => (value === undefined ? [] : [[name, String(value)]])));
    const init = { method: "PUT", body: ReadableStream.from(body), duplex: "half" } as const;
    const answer = await this.#content(volume, "file", { path, force: "true", ...owned }, init);
    return api.volumeStat.parse(await answer.json());
  }

  /** Removes a file, or a directory with all below it. */
  async remove(volume: OpenVolume, path: string): Promise<void> {
    await this.#content(volume, "path", { path }, { method: "DELETE" });
  }

  async #content({ volumeID, token }: OpenVolume, kind: "dir" | "file" | "path", query: Record<string, string>, init: RequestInit): Promise<Response> {
    const { baseURL } = this.#calls;
    let answer: Response;
    try {
      const url = `${baseURL}${api.VOLUME_CONTENT}/${volumeID}/${kind}?${new URLSearchParams(query)}`;
      answer = await fetch(url, { ...init, headers: { authorization: `Bearer ${token}`, "content-type": "application/octet-stream" } });
    } catch (error) {
      throw noAnswer(baseURL, error);
    }
    if (!answer.ok) throw failureOf(answer.status, answer.headers.get("retry-after"), await answer.text());
    return answer;
  }
}
