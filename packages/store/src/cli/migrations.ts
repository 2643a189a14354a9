// `svc store migrations`: the admin server's route migrations, listed, shown, started and watched to their end.
import { setTimeout as sleep } from "node:timers/promises";
import { fail } from "@svc/contract/failures.ts";
import { printJSON } from "@svc/contract/table.ts";
import { askAdmin } from "./admin-server.ts";
import { print, progress, type Words, wholeNumber } from "./words.ts";

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

export async function migrations(words: Words): Promise<number> {
  const [first, key, more] = words.positionals;
  if (more !== undefined) fail("INVALID_REQUEST", `expected one key, got ${words.positionals.slice(1).join(" ")}`);
  if (first === "copy" || first === "move") return await begin(words, first, key ?? fail("INVALID_REQUEST", `migrations ${first}: expected KEY, got nothing`));
  if (key !== undefined) fail("INVALID_REQUEST", `expected copy, move or one task's id, got ${words.positionals.join(" ")}`);
  if (first === undefined) {
    const { tasks } = await askAdmin<{ tasks: Task[] }>(words, "GET", BASE);
    show(words, tasks, tasks);
  } else {
    const task = await find(words, first);
    show(words, task, [task]);
  }
  return 0;
}

async function begin(words: Words, mode: "copy" | "move", key: string): Promise<number> {
  const flag = (name: string) =>
    words.text(name) ?? fail("INVALID_REQUEST", `--${name}: expected a value, got nothing; svc store migrations --help shows how to begin a ${mode}`);
  const begun = await askAdmin<Task>(words, "POST", `${BASE}/${mode}`, {
    authority: words.text("authority") ?? "store-master",
    tenant: words.tenant === "" ? "default" : words.tenant,
    domain: words.text("domain") ?? null,
    object_set: words.text("object-set") ?? null,
    key,
    source_segment: flag("from"),
    target_segments: flag("to")
      .split(",")
      .filter((name) => name !== ""),
    task_executor: flag("executor"),
    ...(words.text("retries") === undefined ? {} : { max_retries: wholeNumber(words, "retries", 5, MAX_RETRIES, 0) }),
  });
  if (words.has("detach")) {
    show(words, begun, [begun]);
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
    task = await find(words, begun.task_id);
  }
  progress("");
  if (task.state === "failed") fail("STORE_REFUSED", `${task.task_id} failed after ${task.attempts} of ${task.max_retries + 1} attempts: ${task.last_error}`);
  if (words.isJSON) printJSON(task);
  else process.stdout.write(`${mode} ${key}: done after ${task.updated_at_ms - task.created_at_ms} ms (${task.task_id})\n`);
  return 0;
}

const find = (words: Words, id: string) => askAdmin<Task>(words, "GET", `${BASE}/${encodeURIComponent(id)}`);

function show(words: Words, value: unknown, tasks: readonly Task[]): void {
  print(
    words,
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
