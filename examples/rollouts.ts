// Rollouts by forks: one prepared sandbox, many attempts from exactly the same state, including memory, each evaluated by a test.
// Run: svc run examples/rollouts.ts [ATTEMPTS]. The policy here is a fixed list of guesses; replace it by your model.
import { SvcClient } from "@svc/contract/client.ts";
import type { EnvdClient } from "@svc/contract/envd.ts";

const client = new SvcClient({ baseURL: process.env["SVC_URL"] });
const attempts = Number(process.argv[2] ?? 4);

/** Returns a command's output; a failing command is a valid result, too. */
async function run(envd: EnvdClient, command: string): Promise<{ output: string; exitCode: number }> {
  let output = "";
  for await (const event of envd.start({ cmd: "/bin/bash", args: ["-c", command], stdin: false, timeoutMs: 60_000 })) {
    if (event.type === "end") return { output, exitCode: event.exitCode };
    if (event.type !== "start") output += event.data.toString();
  }
  throw new Error("the command's stream ended before the command did");
}

/** Returns an action for a state: a guess in this example, a model's answer to the task in practice. */
const policy = (attempt: number) => `def double(x):\n    return x ${["*", "+", "**", "//"][attempt % 4]} 2\n`;

// The initial state of all attempts is created once: repository, packages, warm processes.
const source = await client.create({ templateID: "base", timeout: 600 });
const children: string[] = [];
try {
  await client.envd(source).upload("task/test.py", Buffer.from("from answer import double\nassert [double(x) for x in (0, 2, 3)] == [0, 4, 6]\n"));
  const forks = await client.fork(source.sandboxID, { count: attempts });
  const rollouts = forks.map(async (fork, attempt) => {
    if ("error" in fork) throw new Error(fork.error.message);
    children.push(fork.sandbox.sandboxID);
    const envd = client.envd(fork.sandbox);
    await envd.upload("task/answer.py", Buffer.from(policy(attempt)));
    const { exitCode } = await run(envd, "cd task && python3 test.py");
    return { attempt, reward: exitCode === 0 ? 1 : 0 };
  });
  for (const { attempt, reward } of await Promise.all(rollouts)) console.log(`attempt ${attempt}: reward ${reward}`);
} finally {
  await Promise.allSettled([source.sandboxID, ...children].map((sandboxID) => client.delete(sandboxID)));
}
