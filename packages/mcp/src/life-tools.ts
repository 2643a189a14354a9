// Tools for whole sandboxes: start, list, fork, pause, end, and the address of a port.
import type { McpServer } from "@modelcontextprotocol/server";
import type { EnvdClient } from "@svc/contract/envd.ts";
import { asFailure } from "@svc/contract/failures.ts";
import { z } from "zod";
import { answer, answering } from "./answer.ts";
import { portAddress } from "./port-address.ts";
import type { SessionSandboxes } from "./sandboxes.ts";
import { sandbox } from "./tool-fields.ts";

const MAX_LISTED = 100;
const MAX_FORKS = 20;
const ids = { sandboxes: z.array(z.string()), errors: z.array(z.string()) };
const named = z.string().min(1).describe("Id of a sandbox");

/** Returns a warning if nothing listens on the port; undefined if something does, or if that cannot be determined. */
async function silentPort(envd: EnvdClient, port: number): Promise<string | undefined> {
  try {
    (await envd.openPort(port)).destroy();
    return undefined;
  } catch (error) {
    const { name, message } = asFailure(error);
    return name === "PORT_NOT_OPEN" ? `${message}; until then the URL answers 502` : undefined;
  } finally {
    envd.close();
  }
}

export function addLifeTools(server: McpServer, sandboxes: SessionSandboxes): void {
  server.registerTool(
    "sandbox_create",
    {
      title: "Start another sandbox",
      description: "Starts an isolated Linux computer next to this session's own and returns its id; it ends with the session. Not needed for a single one.",
      inputSchema: z.strictObject({
        template: z.string().optional().describe("Name or id of a template or snapshot"),
        env: z.record(z.string(), z.string()).optional(),
        allow_internet: z.boolean().optional(),
      }),
      outputSchema: z.object({ sandbox: z.string() }),
    },
    ({ template, env, allow_internet: allowInternet }, context) =>
      answering(context, async () => {
        const { sandboxID } = await sandboxes.create({ template, env, allowInternet });
        return answer({ sandbox: sandboxID }, `started sandbox ${sandboxID}`);
      }),
  );

  server.registerTool(
    "sandbox_list",
    {
      title: "List sandboxes",
      description: `Lists the deployment's sandboxes, newest first, at most ${MAX_LISTED}.`,
      inputSchema: z.strictObject({}),
      outputSchema: z.object({
        sandboxes: z.array(z.object({ sandbox: z.string(), template: z.string(), state: z.string(), startedAt: z.string(), endAt: z.string() })),
      }),
      annotations: { readOnlyHint: true },
    },
    (_, context) =>
      answering(context, async () => {
        const found: { sandbox: string; template: string; state: string; startedAt: string; endAt: string }[] = [];
        for await (const { sandboxID, alias, templateID, state, startedAt, endAt } of sandboxes.client.list()) {
          found.push({ sandbox: sandboxID, template: alias ?? templateID, state, startedAt, endAt });
          if (found.length === MAX_LISTED) break;
        }
        return answer({ sandboxes: found });
      }),
  );

  server.registerTool(
    "sandbox_fork",
    {
      title: "Fork a sandbox",
      description: "Copies a running sandbox, with its memory, processes and files, into new ones, to try several ways from the same state. Returns their ids.",
      inputSchema: z.strictObject({ count: z.number().int().min(1).max(MAX_FORKS).default(1), sandbox }),
      outputSchema: z.object(ids),
    },
    ({ count, sandbox: source }, context) =>
      answering(context, async () => {
        const { sandboxID } = await sandboxes.inside(source);
        const { ids: made, errors } = await sandboxes.fork(sandboxID, count);
        return { ...answer({ sandboxes: made, errors }), isError: made.length === 0 };
      }),
  );

  server.registerTool(
    "sandbox_pause",
    {
      title: "Pause a sandbox",
      description: "Keeps a sandbox on disk, memory included, and frees what it uses. The next call for it resumes it where it stood.",
      inputSchema: z.strictObject({ sandbox }),
      outputSchema: z.object({ sandbox: z.string() }),
    },
    ({ sandbox: target }, context) =>
      answering(context, async () => {
        const sandboxID = await sandboxes.resolve(target);
        await sandboxes.client.pause(sandboxID);
        return answer({ sandbox: sandboxID }, `paused sandbox ${sandboxID}`);
      }),
  );

  server.registerTool(
    "sandbox_kill",
    {
      title: "End a sandbox",
      description: "Ends a sandbox, with all that is in it.",
      inputSchema: z.strictObject({ sandbox: named }),
      outputSchema: z.object({ sandbox: z.string() }),
      annotations: { destructiveHint: true },
    },
    ({ sandbox: target }, context) =>
      answering(context, async () => {
        await sandboxes.kill(target);
        return answer({ sandbox: target }, `ended sandbox ${target}`);
      }),
  );

  server.registerTool(
    "port_url",
    {
      title: "Address of a port",
      description: "Gives the URL by which a server that listens on a port in the sandbox is reached from outside, with a warning where nothing listens yet.",
      inputSchema: z.strictObject({ port: z.number().int().min(1).max(65_535), sandbox }),
      outputSchema: z.object({ url: z.string(), headers: z.record(z.string(), z.string()), viaHeadersURL: z.string(), warning: z.string().optional() }),
      annotations: { readOnlyHint: true },
    },
    ({ port, sandbox: target }, context) =>
      answering(context, async () => {
        const sandboxID = await sandboxes.resolve(target);
        const connected = await sandboxes.client.connect(sandboxID);
        const { domain, trafficAccessToken } = connected;
        const address = portAddress(sandboxes.client.baseURL, { sandboxID, domain, trafficAccessToken }, port);
        const warning = await silentPort(sandboxes.client.envd(connected), port);
        const text = `${address.url} (or any path below ${address.viaHeadersURL} with the headers ${JSON.stringify(address.headers)})`;
        return warning === undefined ? answer(address, text) : answer({ ...address, warning }, `${text}\nWarning: ${warning}`);
      }),
  );
}
