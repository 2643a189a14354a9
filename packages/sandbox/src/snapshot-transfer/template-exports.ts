// Keeps object storage in step with this node's templates: sends each tagged build and its names, and deletes what is gone.
import { mkdir, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { asFailure, Failure } from "@svc/contract/failures.ts";
import type { ListedTemplate } from "@svc/contract/template.ts";
import { openKeyedLock } from "@svc/kit/keyed-lock.ts";
import type { Log } from "@svc/kit/log.ts";
import { z } from "zod";
import type { Report } from "../observe/open-observe.ts";
import type { KeepBuild } from "../template/builder.ts";
import type { Builds } from "../template/builds.ts";
import type { Copies, Copy } from "../template/copies.ts";
import { type Catalog, isPassing } from "./exports.ts";
import { type StoredTemplates, templateNameKey } from "./stored-templates.ts";

// snapshot-transfer/templates/<templateID>   what object storage has or may have of a template; written before a change there, removed after the last

const noteShape = z.object({
  /** Builds that may be stored. */
  builds: z.array(z.string()),
  /** Builds that are completely stored. */
  whole: z.array(z.string()),
  names: z.record(z.string(), z.string()),
});
type Note = z.output<typeof noteShape>;

const TEMPLATE_ID = /^[a-z0-9]{20}$/;
/** Bounds the calls that wait for the lock of one template. */
const MAX_WAITING = 64;
const FIRST_WAIT_MS = 1_000;
const LONGEST_WAIT_MS = 60_000;
/** The interval at which copies of deleted templates are removed if no gateway requested that at once. */
const LOOK_MS = 10 * 60_000;

export type TemplateExportsParts = {
  readonly folder: string;
  readonly stored: Pick<StoredTemplates, "exportBuild" | "hasBuild" | "dropBuild" | "putName" | "dropName">;
  readonly builds: Pick<Builds, "templates" | "template" | "tags" | "build">;
  readonly copies: Copies;
  readonly dropCopy: (buildID: string) => Promise<void>;
  readonly catalog: Pick<Catalog, "put" | "drop"> | undefined;
  /** Returns the entry for lists; undefined for a deleted template. */
  readonly listed: (templateID: string) => ListedTemplate | undefined;
  readonly report: Report;
  readonly log: Log;
};

export interface TemplateExports {
  readonly waiting: number;
  /** Called when the template's builds or tags changed, or it was deleted. */
  soon(templateID: string): void;
  /** Returns its builds that other nodes can fetch. */
  shared(templateID: string): readonly string[];
  /**
   * Runs `publish` once other nodes can find the build by `tags` in object storage, before this node reports it as ready. After a kill in between, the
   * next start deletes it there. @throws what prevented the export, or `publish`; the build is then deleted there.
   */
  readonly keep: KeepBuild;
  /** All of the template that should be stored is stored when this returns. @throws OBJECTS_UNAVAILABLE, …; retries then follow in the background. */
  now(templateID: string): Promise<void>;
  /** Called after a start: sends what is not stored yet, deletes the exports that nothing needs any more, and from then on looks for outdated copies. */
  start(): void;
  close(): Promise<void>;
}

type Unpublished = { readonly build: Copy; readonly tags: readonly string[] };

export async function openTemplateExports(parts: TemplateExportsParts): Promise<TemplateExports> {
  // I53: with durable snapshots, a build is ready only once object storage has it.
  const { stored, builds, copies, report, log } = parts;
  const folder = join(parts.folder, "templates");
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const notes = new Map<string, Note>();
  for (const name of await readdir(folder)) {
    if (!TEMPLATE_ID.test(name)) {
      await rm(join(folder, name), { force: true });
      continue;
    }
    // A note emptied by a power loss is ignored; what it named stays stored until its template is exported again or deleted.
    const note = await readNote(join(folder, name));
    if (note !== undefined) notes.set(name, note);
  }
  const pending = new Set<string>();
  const seen = new Set<string>();
  /** Builds that become ready once they are stored, by id. */
  const unpublished = new Map<string, Unpublished>();
  const lock = openKeyedLock("template", MAX_WAITING);
  const closing = new AbortController();
  let working: Promise<void> | undefined;
  let looking: Promise<void> | undefined;
  let timer: NodeJS.Timeout | undefined;

  /** Returns what should be stored; a build that uses the host's own files cannot be transferred. */
  function wantedOf(templateID: string): { readonly builds: Map<string, Copy>; readonly names: Record<string, string> } {
    const wanted = { builds: new Map<string, Copy>(), names: {} as Record<string, string> };
    const template = builds.template(templateID);
    if (template?.templateID !== templateID) return wanted;
    for (const { tag, buildID } of builds.tags(templateID)) {
      const build = builds.build(buildID);
      if (build?.status !== "ready" || build.result === undefined || (build.result.chain.base?.binds ?? []).length > 0) continue;
      wanted.builds.set(buildID, { buildID, templateID, name: template.name, createdAtMs: build.createdAtMs, result: build.result });
      for (const name of [template.name, templateID]) wanted.names[templateNameKey(name, tag)] = buildID;
    }
    const bornLater = (a: Unpublished, b: Unpublished) => a.build.createdAtMs - b.build.createdAtMs;
    for (const { build, tags } of [...unpublished.values()].filter((each) => each.build.templateID === templateID).sort(bornLater)) {
      wanted.builds.set(build.buildID, build);
      for (const tag of tags) for (const name of [build.name, templateID]) wanted.names[templateNameKey(name, tag)] = build.buildID;
    }
    return wanted;
  }

  async function keep(templateID: string, note: Note): Promise<void> {
    notes.set(templateID, note);
    const path = join(folder, templateID);
    await writeFile(`${path}.new`, JSON.stringify(note));
    await rename(`${path}.new`, path);
  }

  const now = (templateID: string) => lock.run(templateID, () => bring(templateID));

  async function bring(templateID: string): Promise<void> {
    let note = notes.get(templateID) ?? { builds: [], whole: [], names: {} };
    const change = (next: Partial<Note>) => keep(templateID, (note = { ...note, ...next }));
    const wanted = wantedOf(templateID);
    if (!seen.has(templateID)) {
      // Once after a start: sends again what another process deleted there.
      const whole: string[] = [];
      for (const buildID of note.whole) if (await stored.hasBuild(buildID)) whole.push(buildID);
      if (whole.length < note.whole.length)
        await change({ whole, names: Object.fromEntries(Object.entries(note.names).filter(([key]) => !(key in wanted.names))) });
      seen.add(templateID);
    }
    for (const [buildID, build] of wanted.builds) {
      if (note.whole.includes(buildID)) continue;
      if (!note.builds.includes(buildID)) await change({ builds: [...note.builds, buildID] });
      try {
        await stored.exportBuild(build);
      } catch (error) {
        // A retry would fail the same way, so the template's other builds continue.
        if (pending.has(templateID) || unpublished.has(buildID) || isPassing(asFailure(error).name)) throw error;
        log.error({ err: error, templateID, buildID }, "a build of a template cannot be exported to object storage; it can be used on this node only");
        for (const [key, each] of Object.entries(wanted.names)) if (each === buildID) delete wanted.names[key];
        continue;
      }
      await change({ whole: [...note.whole, buildID] });
      report("template.exported", { templateID }, { buildID });
    }
    for (const [key, buildID] of Object.entries(wanted.names)) {
      if (note.names[key] === buildID) continue;
      await stored.putName(key, buildID);
      await change({ names: { ...note.names, [key]: buildID } });
    }
    for (const key of Object.keys(note.names)) {
      if (key in wanted.names) continue;
      await stored.dropName(key, note.builds);
      const { [key]: _, ...names } = note.names;
      await change({ names });
    }
    // Builds are deleted last, so that a name never leads to a missing build.
    for (const buildID of note.builds) {
      if (wanted.builds.has(buildID)) continue;
      await change({ whole: note.whole.filter((each) => each !== buildID) });
      await stored.dropBuild(buildID);
      await change({ builds: note.builds.filter((each) => each !== buildID) });
    }
    const listed = note.whole.length === 0 ? undefined : parts.listed(templateID);
    if (listed === undefined) await parts.catalog?.drop("templates", templateID);
    else await parts.catalog?.put("templates", templateID, { ...listed, buildStatus: "ready" });
    if (wanted.builds.size > 0) return;
    notes.delete(templateID);
    await rm(join(folder, templateID), { force: true });
  }

  async function work(): Promise<void> {
    let waitMs = FIRST_WAIT_MS;
    for (let [templateID] = pending; templateID !== undefined && !closing.signal.aborted; [templateID] = pending) {
      try {
        pending.delete(templateID);
        await now(templateID);
        waitMs = FIRST_WAIT_MS;
      } catch (error) {
        if (closing.signal.aborted) return;
        // The template was deleted during the export, and that change is already pending.
        if (pending.has(templateID)) continue;
        log.error({ err: error, templateID }, "a template could not be exported to object storage; retrying");
        pending.add(templateID);
        await sleep(waitMs, undefined, { signal: closing.signal, ref: false }).catch(() => undefined);
        waitMs = Math.min(LONGEST_WAIT_MS, waitMs * 2);
      }
    }
  }

  function soon(templateID: string): void {
    if (closing.signal.aborted) return;
    pending.add(templateID);
    working ??= work().finally(() => {
      working = undefined;
    });
  }

  /** Drops copies whose build is no longer stored; a copy stays if that cannot be determined. */
  async function dropOver(): Promise<void> {
    for (const { buildID, templateID } of copies.all()) {
      if (closing.signal.aborted) return;
      if (await stored.hasBuild(buildID)) continue;
      await parts.dropCopy(buildID);
      log.info({ templateID, buildID }, "a copy of another node's template was dropped: its build is not in object storage any more");
    }
  }

  function look(): void {
    looking ??= dropOver()
      .catch((error: unknown) => log.warn({ err: error }, "it could not be determined which copies of templates are still needed"))
      .finally(() => {
        looking = undefined;
      });
  }

  return {
    get waiting() {
      return pending.size + (working === undefined ? 0 : 1);
    },
    soon,
    async keep(build, tags, publish) {
      const { buildID, templateID } = build;
      unpublished.set(buildID, { build, tags });
      try {
        // A failure after the build and its names are stored concerns only the catalog, which may follow later.
        const error = await now(templateID).catch((each: unknown) => each);
        const note = notes.get(templateID);
        const isNamed = () => Object.entries(wantedOf(templateID).names).every(([key, id]) => note?.names[key] === id);
        if (error !== undefined && !(note?.whole.includes(buildID) === true && isNamed())) throw notKept(error);
        publish();
      } finally {
        unpublished.delete(buildID);
        soon(templateID);
      }
    },
    async now(templateID) {
      await now(templateID).catch((error: unknown) => {
        soon(templateID);
        throw error;
      });
    },
    shared: (templateID) => notes.get(templateID)?.whole ?? [],
    start() {
      for (const templateID of new Set([...notes.keys(), ...builds.templates().map((each) => each.templateID)])) soon(templateID);
      look();
      timer = setInterval(look, LOOK_MS);
      timer.unref();
    },
    async close() {
      closing.abort();
      clearInterval(timer);
      await Promise.race([Promise.allSettled([working, looking]), sleep(2_000, undefined, { ref: false })]);
    },
  };
}

function notKept(cause: unknown): Failure {
  const { name, message, details } = asFailure(cause);
  const said = `it was built, but is not in object storage, as snapshots.durable requires before it is ready: ${message}; build it again, its steps come from the cache`;
  return new Failure(name, said, { cause, details });
}

async function readNote(path: string): Promise<Note | undefined> {
  try {
    return noteShape.parse(JSON.parse(await readFile(path, "utf8")));
  } catch {
    return undefined;
  }
}
