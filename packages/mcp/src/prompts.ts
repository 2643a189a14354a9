// Prompts that a person selects in a client: each explains to the model how to use the tools for one kind of work.
import { completable, type McpServer } from "@modelcontextprotocol/server";
import { z } from "zod";
import { completeIDs } from "./complete.ts";
import type { SessionSandboxes } from "./sandboxes.ts";

export function addPrompts(server: McpServer, sandboxes: SessionSandboxes): void {
  const id = completable(z.string(), (begun) => completeIDs(sandboxes, begun));
  const sandbox = id.optional().describe("Id of a sandbox; default: this session's own");
  const say = (text: string) => ({ messages: [{ role: "user" as const, content: { type: "text" as const, text } }] });
  const where = (id: string | undefined) => (id === undefined || id === "" ? "" : ` Work in sandbox ${id}: pass it as \`sandbox\` to each tool.`);

  server.registerPrompt(
    "try-several-ways",
    {
      title: "Try several ways and keep the best",
      description: "Prepares a sandbox once, forks it, and tries another way in each fork.",
      argsSchema: z.object({ task: z.string().describe("What is to be done"), ways: z.string().default("3").describe("How many ways to try"), sandbox }),
    },
    ({ task, ways, sandbox: chosen }) =>
      say(
        `${task}\n\nPrepare what all ways need in one sandbox first (files, packages, running servers). Then call sandbox_fork with count ${ways}, and try a different way in each fork, passing its id as \`sandbox\`. Compare the results by measuring them, tell me which is best and why, and end the other forks with sandbox_kill.${where(chosen)}`,
      ),
  );
  server.registerPrompt(
    "analyze-data",
    {
      title: "Analyze a data file",
      description: "Looks at a file of the sandbox with Python, step by step, with plots.",
      argsSchema: z.object({ path: z.string().describe("The file in the sandbox"), question: z.string().default("What is notable in it?"), sandbox }),
    },
    ({ path, question, sandbox: chosen }) =>
      say(
        `Analyze the file ${path} in the sandbox: ${question}\n\nUse run_code in small steps: look at the shape and the first rows, check for missing and odd values, then answer. Where the answer says \`stateful: true\`, variables stay between the steps; otherwise load the data anew in each. Show plots where they say more than numbers.${where(chosen)}`,
      ),
  );
  server.registerPrompt(
    "serve-app",
    {
      title: "Build and serve a web application",
      description: "Writes an application in the sandbox, starts it, and gives its URL.",
      argsSchema: z.object({ what: z.string().describe("What the application does"), sandbox }),
    },
    ({ what, sandbox: chosen }) =>
      say(
        `Build this as a web application in the sandbox: ${what}\n\nWrite its files with write_file, start it with start_process so that it listens on 0.0.0.0, check with run_command and curl that it answers, and give me the address of its port by port_url. If it does not start, read the output file that start_process named.${where(chosen)}`,
      ),
  );
}
