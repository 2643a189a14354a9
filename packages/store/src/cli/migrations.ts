// `svc store migrations`: the admin server's route migrations, listed, shown, started and watched to their end.
import { setTimeout as sleep } from "node:timers/promises";
import { fail } from "@svc/contract/failures.ts";
import { printJSON } from "@svc/contract/table.ts";
import { askAdmin } from "./admin-server.ts";
import { type Arguments, print, progress, wholeNumber } from "./arguments.ts";

const POLL_MS = 200;
const MAX_RETRIES = 1000;
const BASE = "/v1/route-migrations";

type Task = {
  task_id: string;
  mode: string;
  tenant: string;
  domain: string | null;
  object_set: string | null;
  key: string;
  source_segment: string;
  target_segments: string[];
  task_executor: string;
  state: string;
  attempts: number;
  max_retries: number;
  last_error: string;
  created_at_ms: number;
  updated_at_ms: number;
};

export async function migrations(args: Arguments): Promise<number> {
  const [first, key, more] = args.positionals;
  if (more !== undefined) fail("INVALID_REQUEST", `expected one key, got ${args.positionals.slice(1).join(" ")}`);
  if (first === "copy" || first === "move") return await begin(args, first, key ?? fail("INVALID_REQUEST", `migrations ${first}: expected KEY, got nothing`));
  if (key !== undefined) fail("INVALID_REQUEST", `expected copy, move or one task's id, got ${args.positionals.join(" ")}`);
  if (first === undefined) {
    const { tasks } = await askAdmin<{ tasks: Task[] }>(args, "GET", BASE);
    show(args, tasks, tasks);
  } else {
    const task = await find(args, first);
    show(args, task, [task]);
  }
  return 0;
}

async function begin(args: Arguments, mode: "copy" | "move", key: string): Promise<number> {
  const flag = (name: string) =>
    args.text(name) ?? fail("INVALID_REQUEST", `--${name}: expected a value, got nothing; svc store migrations --help shows how to begin a ${mode}`);
  const begun = await askAdmin<Task>(args, "POST", `${BASE}/${mode}`, {
    authority: args.text("authority") ?? "store-master",
    tenant: args.tenant === "" ? "default" : args.tenant,
    domain: args.text("domain") ?? null,
    object_set: args.text("object-set") ?? null,
    key,
    source_segment: flag("from"),
    target_segments: flag("to")
      .split(",")
      .filter((name) => name !== ""),
    task_executor: flag("executor"),
    ...(args.text("retries") === undefined ? {} : { max_retries: wholeNumber(args, "retries", 5, MAX_RETRIES, 0) }),
  });
  if (args.has("detach")) {
    show(args, begun, [begun]);
    return 0;
  }
  let task = begun;
  let said = "";
  while (task.state !== "succeeded" && task.state !== "failed") {
    progress(
      `${mode} ${key}: ${task.state}, attempt ${Math.max(1, task.attempts)} of ${task.max_retries + 1}${task.last_error === "" ? "" : `: ${task.last_error}`}`,
    );
    // Without a terminal the progress line is not shown, so each new error is printed once.
    if (!process.stderr.isTTY && task.last_error !== "" && task.last_error !== said)
      process.stderr.write(`svc: ${mode} ${key}: ${task.last_error}; it is tried again\n`);
    said = task.last_error;
    await sleep(POLL_MS);
    task = await find(args, begun.task_id);
  }
  progress("");
  if (task.state === "failed") fail("STORE_REFUSED", `${task.task_id} failed after ${task.attempts} of ${task.max_retries + 1} attempts: ${task.last_error}`);
  if (args.isJSON) printJSON(task);
  else process.stdout.write(`${mode} ${key}: done after ${task.updated_at_ms - task.created_at_ms} ms (${task.task_id})\n`);
  return 0;
}

const find = (args: Arguments, id: string) => askAdmin<Task>(args, "GET", `${BASE}/${encodeURIComponent(id)}`);

function show(args: Arguments, value: unknown, tasks: readonly Task[]): void {
  print(
    args,
    value,
    ["TASK", "MODE", "KEY", "FROM", "TO", "EXECUTOR", "STATE", "ATTEMPTS", "LAST ERROR"],
    tasks.map((task) => [
      task.task_id,
      task.mode,
      [...(task.domain === null && task.object_set === null ? [] : [`${task.domain ?? "default"}/${task.object_set ?? "default"}`]), task.key].join(" "),
      task.source_segment,
      task.target_segments.join(", "),
      task.task_executor,
      task.state,
      `${task.attempts} of ${task.max_retries + 1}`,
      task.last_error,
    ]),
  );
}
