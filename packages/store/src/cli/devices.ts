// `svc store devices`: lists, creates, fills, empties and unregisters devices of the cold tier through the admin server.
import { setTimeout as sleep } from "node:timers/promises";
import { fail } from "@svc/contract/failures.ts";
import { byteSize, printJSON } from "@svc/contract/table.ts";
import { askAdmin } from "./admin-server.ts";
import { type Arguments, print, progress, wholeNumber } from "./arguments.ts";

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

export async function devices(args: Arguments): Promise<number> {
  const [first, second, more] = args.positionals;
  if (more !== undefined) fail("INVALID_REQUEST", `expected one device, got ${args.positionals.slice(1).join(" ")}`);
  if (first === "offload" && second === undefined)
    fail("INVALID_REQUEST", "offload: expected the stable id of an owner behind it; svc store clients lists them");
  if (second === undefined && [...acts, "create"].some((each) => each === first))
    fail("INVALID_REQUEST", `${first}: expected the id of a device behind it, as svc store devices lists them`);
  if (second === undefined) return first === undefined ? await listAll(args) : await showOne(args, first);
  if (first === "create") return await create(args, second);
  if (first === "offload") return await offload(args, second);
  const act = acts.find((each) => each === first) ?? fail("INVALID_REQUEST", `${first}: expected create, offload, ${acts.join(", ")}`);
  const isQuestion = act === "blockers" || act === "orphan-quarantine";
  const path = pathOf(args, `devices/${encodeURIComponent(second)}/${act}`);
  const said = await (isQuestion ? askAdmin<Said>(args, "GET", path) : askAdmin<Said>(args, "POST", path, bodyOf(args, act)));
  if (args.isJSON || said.message === undefined) printJSON(said);
  else process.stdout.write(`${said.message}\n`);
  return 0;
}

function bodyOf(args: Arguments, act: (typeof acts)[number]): object {
  const dry = args.has("dry-run") ? { dry_run: true } : {};
  if (act === "register") return dry;
  if (act === "unregister") return { ...dry, ...(args.has("force") ? { force: true } : {}) };
  if (act !== "drain") return {};
  const [executor, to] = [args.text("executor"), args.text("to")];
  return {
    ...dry,
    ...(executor === undefined ? {} : { migration_task_executor: executor }),
    ...(to === undefined ? {} : { migration_target_segments: to.split(",").filter((name) => name !== "") }),
  };
}

async function listAll(args: Arguments): Promise<number> {
  const { devices: found } = await askAdmin<{ devices: Device[] }>(args, "GET", pathOf(args, "devices"));
  show(args, found, found);
  return 0;
}

async function showOne(args: Arguments, id: string): Promise<number> {
  const device = await askAdmin<Device>(args, "GET", pathOf(args, `devices/${encodeURIComponent(id)}`));
  show(args, device, [device]);
  return 0;
}

async function create(args: Arguments, id: string): Promise<number> {
  const flag = (name: string) =>
    args.text(name) ?? fail("INVALID_REQUEST", `--${name}: expected a value, got nothing; svc store devices --help shows how to create one`);
  const [uuid, url] = [args.text("uuid"), args.text("s3")];
  const target = url !== undefined ? { type: "s3", url } : uuid !== undefined ? { type: "uuid", uuid } : { type: "directory", path: flag("path") };
  const size = args.text("capacity") === undefined ? {} : { capacity_override_bytes: wholeNumber(args, "capacity", 0, Number.MAX_SAFE_INTEGER) };
  const body = {
    stable_id: flag("owner"),
    device_id: id,
    cold_tier_id: args.text("alias") ?? id,
    kind: args.text("kind") ?? (url === undefined ? "ssd" : "s3"),
    target,
    ...size,
  };
  const query = new URLSearchParams({ ...(args.has("no-check") ? {} : { check: "true" }), ...(args.tenant === "" ? {} : { tenant: args.tenant }) });
  const device = await askAdmin<Device>(args, "POST", `${BASE}/devices?${query}`, body);
  show(args, device, [device]);
  return 0;
}

async function offload(args: Arguments, owner: string): Promise<number> {
  const body = { stable_id: owner, max_tasks: wholeNumber(args, "objects", DEFAULT_OBJECTS, MAX_OBJECTS) };
  let task = await askAdmin<Offload>(args, "POST", pathOf(args, "offloads/trigger"), body);
  while (task.state === "pending" || task.state === "running") {
    progress(`${owner}: ${task.materialized} objects are on a device`);
    await sleep(POLL_MS);
    task = await askAdmin<Offload>(args, "GET", pathOf(args, `offloads/${task.task_id}`));
  }
  progress("");
  if (task.state === "failed") fail("STORE_REFUSED", `${task.task_id} failed after ${task.materialized} objects: ${task.last_error}`);
  if (args.isJSON) printJSON(task);
  else process.stdout.write(`${task.materialized} objects of ${owner} went to a device (${task.task_id})\n`);
  return 0;
}

const pathOf = ({ tenant }: Arguments, path: string) => `${BASE}/${path}${tenant === "" ? "" : `?tenant=${encodeURIComponent(tenant)}`}`;

function show(args: Arguments, value: unknown, found: readonly Device[]): void {
  print(
    args,
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
