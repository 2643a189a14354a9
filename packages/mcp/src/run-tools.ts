// Tools that run something in a sandbox: a command, a piece of code, a server in the background.
import { randomBytes } from "node:crypto";
import type { CallToolResult, McpServer } from "@modelcontextprotocol/server";
import type { EnvdClient, StartRequest } from "@svc/contract/envd.ts";
import { asFailure, fail } from "@svc/contract/failures.ts";
import { shellExitCode } from "@svc/contract/process-event.ts";
import { z } from "zod";
import { answer, answering, type Progress } from "./answer.ts";
import { type CodeRun, runInKernel } from "./interpreter.ts";
import { Output } from "./output.ts";
import type { SessionSandboxes } from "./sandboxes.ts";
import { sandbox } from "./tool-fields.ts";

const MAX_SECONDS = 3600;
const MAX_CODE_BYTES = 1024 * 1024;

const timeout_seconds = z.number().int().min(1).max(MAX_SECONDS).default(60).describe(`It is ended after so many seconds, at most ${MAX_SECONDS}`);
const ran = z.object({ exitCode: z.number(), stdout: z.string(), stderr: z.string(), timedOut: z.boolean() });
const ranCode = ran.extend({
  stateful: z.boolean().describe("true if variables stay for the next call"),
  results: z.array(z.record(z.string(), z.unknown())),
  error: z.object({ name: z.string(), value: z.string(), traceback: z.string() }).optional(),
});

/** Used in sandboxes without an interpreter: for each language, the file extension and the program that runs the file. */
const languages = { python: ["py", "python3"], javascript: ["mjs", "node"], typescript: ["ts", "node"], bash: ["sh", "bash"] } as const;

export function addRunTools(server: McpServer, sandboxes: SessionSandboxes): void {
  server.registerTool(
    "run_command",
    {
      title: "Run a shell command",
      description:
        "Runs a command with `bash -l -c` in the sandbox and returns its exit code, stdout and stderr (32 KiB from the beginning and 32 KiB from the end of each). Files and background processes stay; shell variables and the working directory do not carry over to the next call.",
      inputSchema: z.strictObject({
        command: z.string().min(1),
        cwd: z.string().optional().describe("Working directory; default: the user's home"),
        user: z.string().optional().describe("root or user; default: user, who may use sudo"),
        env: z.record(z.string(), z.string()).optional(),
        timeout_seconds,
        sandbox,
      }),
      outputSchema: ran,
    },
    ({ command, cwd, user, env, timeout_seconds: limit, sandbox: named }, context) =>
      answering(context, async (progress) => {
        const { envd } = await sandboxes.inside(named);
        const request = { cmd: "/bin/bash", args: ["-l", "-c", command], cwd, user, envs: env ?? {}, timeoutMs: limit * 1000, stdin: false };
        return run(envd, request, context.mcpReq.signal, progress);
      }),
  );

  server.registerTool(
    "run_code",
    {
      title: "Run a piece of code",
      description:
        "Runs code in Python, JavaScript, TypeScript or bash in the sandbox, and returns what it prints, the value of its last line, and images such as plots. In a sandbox of code-interpreter-v1 variables and imports stay for the next call, as in a notebook; elsewhere each call is a new process (`stateful` in the answer says which).",
      inputSchema: z.strictObject({
        code: z.string().min(1).max(MAX_CODE_BYTES),
        language: z.enum(["python", "javascript", "typescript", "bash"]).default("python"),
        timeout_seconds,
        sandbox,
      }),
      outputSchema: ranCode,
    },
    ({ code, language, timeout_seconds: limit, sandbox: named }, context) =>
      answering(context, async (progress) => {
        const { signal } = context.mcpReq;
        const { envd, answered } = await sandboxes.inside(named);
        const kernel = await runInKernel(sandboxes.client, answered, { code, language, timeoutMs: limit * 1000 }, signal, progress.say);
        if (kernel !== undefined) return shown(kernel, limit);
        const [ending, program] = languages[language];
        const file = `/tmp/code-${randomBytes(6).toString("hex")}.${ending}`;
        await envd.upload(file, Buffer.from(code), { signal });
        try {
          const args = ["-l", "-c", `exec ${program} ${file}`];
          const result = await run(envd, { cmd: "/bin/bash", args, timeoutMs: limit * 1000, stdin: false }, signal, progress);
          return { ...result, structuredContent: { ...(result.structuredContent as Record<string, unknown>), stateful: false, results: [] } };
        } finally {
          await envd.remove(file).catch(() => undefined);
        }
      }),
  );

  server.registerTool(
    "start_process",
    {
      title: "Start a process in the background",
      description:
        "Starts a command that continues after this call, such as a server, and returns its process id and the file that its output goes to (read it with read_file). Stop it with run_command `kill PID`; reach its port with port_url.",
      inputSchema: z.strictObject({
        command: z.string().min(1),
        cwd: z.string().optional(),
        user: z.string().optional(),
        env: z.record(z.string(), z.string()).optional(),
        sandbox,
      }),
      outputSchema: z.object({ pid: z.number(), output: z.string() }),
    },
    ({ command, cwd, user, env, sandbox: named }, context) =>
      answering(context, async () => {
        const { signal } = context.mcpReq;
        const { envd } = await sandboxes.inside(named);
        const output = `/tmp/process-${randomBytes(6).toString("hex")}.log`;
        const args = ["-l", "-c", `exec >${output} 2>&1; ${command}`];
        for await (const event of envd.start({ cmd: "/bin/bash", args, cwd, user, envs: env ?? {}, stdin: false, signal })) {
          if (event.type === "start") return answer({ pid: event.pid, output }, `started as process ${event.pid}; its output goes to ${output}`);
        }
        return fail("SERVER_UNREACHABLE", "the process was not started: its stream ended at once");
      }),
  );
}

async function run(envd: EnvdClient, request: StartRequest, signal: AbortSignal, progress: Progress): Promise<CallToolResult> {
  const [stdout, stderr] = [new Output(), new Output()];
  let pid: number | undefined;
  let timedOut = false;
  let exitCode = -1;
  try {
    for await (const event of envd.start({ ...request, signal })) {
      if (event.type === "start") pid = event.pid;
      else if (event.type === "end") exitCode = shellExitCode(event);
      else {
        (event.type === "stderr" ? stderr : stdout).add(event.data);
        progress.say(event.data.toString("utf8"));
      }
    }
  } catch (error) {
    // If the call is cancelled, the command must not continue to run without a reader.
    if (signal.aborted && pid !== undefined) await envd.sendSignal({ pid }, "SIGKILL", { user: request.user }).catch(() => undefined);
    if (asFailure(error).name !== "TIMED_OUT") throw error;
    timedOut = true;
  }
  const data = { exitCode: timedOut ? 124 : exitCode, stdout: stdout.text, stderr: stderr.text, timedOut };
  const said = [data.stdout, data.stderr === "" ? "" : `[stderr]\n${data.stderr}`].filter((text) => text !== "").join("\n");
  const end = timedOut ? `[ended after ${(request.timeoutMs ?? 0) / 1000} s: raise timeout_seconds, or use start_process]` : `[exit code ${exitCode}]`;
  return { ...answer(data, `${said}${said === "" || said.endsWith("\n") ? "" : "\n"}${end}`), isError: timedOut };
}

/** Formats the output of a kernel: text and data for the model, and images as image content. */
function shown({ stdout, stderr, results, images, error, timedOut, leftOut }: CodeRun, limitSeconds: number): CallToolResult {
  const exitCode = timedOut ? 124 : error === undefined ? 0 : 1;
  const data = { exitCode, stdout, stderr, timedOut, stateful: true, results: [...results], ...(error === undefined ? {} : { error }) };
  const parts = [
    stdout,
    stderr === "" ? "" : `[stderr]\n${stderr}`,
    ...results.map((result) => result.text ?? result.markdown ?? result.html ?? ""),
    error === undefined ? "" : error.traceback,
    leftOut === 0 ? "" : `[… ${leftOut} more results or images …]`,
    timedOut ? `[interrupted after ${limitSeconds} s: raise timeout_seconds; the variables are still there]` : "",
  ];
  const text = parts
    .map((part) => part.trimEnd())
    .filter((part) => part !== "")
    .join("\n");
  const content: CallToolResult["content"] = [{ type: "text", text: text === "" ? "[no output]" : text }];
  for (const { mimeType, data: bytes } of images) content.push({ type: "image", mimeType, data: bytes });
  return { content, structuredContent: data, isError: exitCode !== 0 };
}
