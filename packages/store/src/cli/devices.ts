// `svc store devices`: devices of the cold tier, listed, created, filled, emptied and taken out of service through the admin server.
import { setTimeout as sleep } from "node:timers/promises";
import { fail } from "@svc/contract/failures.ts";
import { byteSize, printJSON } from "@svc/contract/table.ts";
import { askAdmin } from "./admin-server.ts";
import { print, progress, type Words, wholeNumber } from "./words.ts";

const BASE = "/v1/cold-tier";
const POLL_MS = 500;
const MAX_OBJECTS = 1_000_000;
const DEFAULT_OBJECTS = 64;
const acts = ["register", "unregister", "enable", "disable", "drain", "blockers", "manual-gc", "manual-free", "orphan-quarantine"] as const;

type Device = {
  device_id: string;
  /** An alias for people. */
  cold_tier_id: string;
  stable_id: string;
  kind: string;
  root_dir: string | null;
  state: string;
  schedulable: boolean;
  used_bytes: number;
  capacity_bytes: number | null;
  last_error: string | null;
};
type Said = { message?: string };
type Offload = { task_id: string; state: string; materialized: number; last_error: string };

export async function devices(words: Words): Promise<number> {
  const [first, second, more] = words.positionals;
  if (more !== undefined) fail("INVALID_REQUEST", `expected one device, got ${words.positionals.slice(1).join(" ")}`);
  if (first === "offload" && second === undefined)
    fail("INVALID_REQUEST", "offload: expected the stable id of an owner behind it; svc store clients lists them");
  if (second === undefined && [...acts, "create"].some((each) => each === first))
    fail("INVALID_REQUEST", `${first}: expected the id of a device behind it, as svc store devices lists them`);
  if (second === undefined) return first === undefined ? await listAll(words) : await showOne(words, first);
  if (first === "create") return await create(words, second);
  if (first === "offload") return await offload(words, second);
  const act = acts.find((each) => each === first) ?? fail("INVALID_REQUEST", `${first}: expected create, offload, ${acts.join(", ")}`);
  const isQuestion = act === "blockers" || act === "orphan-quarantine";
  const path = pathOf(words, `devices/${encodeURIComponent(second)}/${act}`);
  const said = await (isQuestion ? askAdmin<Said>(words, "GET", path) : askAdmin<Said>(words, "POST", path, bodyOf(words, act)));
  if (words.isJSON || said.message === undefined) printJSON(said);
  else process.stdout.write(`${said.message}\n`);
  return 0;
}

function bodyOf(words: Words, act: (typeof acts)[number]): object {
  const dry = words.has("dry-run") ? { dry_run: true } : {};
  if (act === "register") return dry;
  if (act === "unregister") return { ...dry, ...(words.has("force") ? { force: true } : {}) };
  if (act !== "drain") return {};
  const [executor, to] = [words.text("executor"), words.text("to")];
  return {
    ...dry,
    ...(executor === undefined ? {} : { migration_task_executor: executor }),
    ...(to === undefined ? {} : { migration_target_segments: to.split(",").filter((name) => name !== "") }),
  };
}

async function listAll(words: Words): Promise<number> {
  const { devices: found } = await askAdmin<{ devices: Device[] }>(words, "GET", pathOf(words, "devices"));
  show(words, found, found);
  return 0;
}

async function showOne(words: Words, id: string): Promise<number> {
  const device = await askAdmin<Device>(words, "GET", pathOf(words, `devices/${encodeURIComponent(id)}`));
  show(words, device, [device]);
  return 0;
}

async function create(words: Words, id: string): Promise<number> {
  const flag = (name: string) =>
    words.text(name) ?? fail("INVALID_REQUEST", `--${name}: expected a value, got nothing; svc store devices --help shows how to create one`);
  const [uuid, url] = [words.text("uuid"), words.text("s3")];
  const target = url !== undefined ? { type: "s3", url } : uuid !== undefined ? { type: "uuid", uuid } : { type: "directory", path: flag("path") };
  const size = words.text("capacity") === undefined ? {} : { capacity_override_bytes: wholeNumber(words, "capacity", 0, Number.MAX_SAFE_INTEGER) };
  const body = {
    stable_id: flag("owner"),
    device_id: id,
    cold_tier_id: words.text("alias") ?? id,
    kind: words.text("kind") ?? (url === undefined ? "ssd" : "s3"),
    target,
    ...size,
  };
  const query = new URLSearchParams({ ...(words.has("no-check") ? {} : { check: "true" }), ...(words.tenant === "" ? {} : { tenant: words.tenant }) });
  const device = await askAdmin<Device>(words, "POST", `${BASE}/devices?${query}`, body);
  show(words, device, [device]);
  return 0;
}

async function offload(words: Words, owner: string): Promise<number> {
  const body = { stable_id: owner, max_tasks: wholeNumber(words, "objects", DEFAULT_OBJECTS, MAX_OBJECTS) };
  let task = await askAdmin<Offload>(words, "POST", pathOf(words, "offloads/trigger"), body);
  while (task.state === "pending" || task.state === "running") {
    progress(`${owner}: ${task.materialized} objects are on a device`);
    await sleep(POLL_MS);
    task = await askAdmin<Offload>(words, "GET", pathOf(words, `offloads/${task.task_id}`));
  }
  progress("");
  if (task.state === "failed") fail("STORE_REFUSED", `${task.task_id} failed after ${task.materialized} objects: ${task.last_error}`);
  if (words.isJSON) printJSON(task);
  else process.stdout.write(`${task.materialized} objects of ${owner} went to a device (${task.task_id})\n`);
  return 0;
}

const pathOf = ({ tenant }: Words, path: string) => `${BASE}/${path}${tenant === "" ? "" : `?tenant=${encodeURIComponent(tenant)}`}`;

function show(words: Words, value: unknown, found: readonly Device[]): void {
  print(
    words,
    value,
    ["DEVICE", "OWNER", "KIND", "STATE", "TAKES OBJECTS", "USED", "CAPACITY", "FOLDER", "LAST ERROR"],
    found.map((device) => [
      device.cold_tier_id === device.device_id ? device.device_id : `${device.device_id} (${device.cold_tier_id})`,
      device.stable_id,
      device.kind,
      device.state,
      device.schedulable ? "yes" : "no",
      byteSize(device.used_bytes),
      device.capacity_bytes === null ? "" : byteSize(device.capacity_bytes),
      device.root_dir ?? "",
      device.last_error ?? "",
    ]),
  );
}
