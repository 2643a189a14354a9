// `svc start`: creates a sandbox; on a terminal and without -d it opens a shell in it.

import { type OutputFormat, printJSON } from "@svc/contract/table.ts";
import { type AccessOptions, withClient } from "../access/access.ts";
import { remark, UsageError } from "../output/complain.ts";
import { openSession } from "./connect.ts";
import type { EgressProxyOption, HeaderRules } from "./network.ts";

type Options = AccessOptions & {
  detach?: true;
  timeout: number;
  metadata?: Record<string, string>;
  env?: Record<string, string>;
  internet: boolean;
  private?: true;
  autoPause?: "memory" | "files";
  autoResume?: true;
  idlePause?: number;
  allowOut?: string[];
  denyOut?: string[];
  rule?: HeaderRules;
  egressProxy?: EgressProxyOption;
  dnsServer?: string[];
  rm?: true;
  strictFiles?: true;
  volume?: { name: string; path: string }[];
  output?: OutputFormat;
};

export function start(templateID: string, options: Options): Promise<number> {
  const {
    detach,
    timeout,
    metadata,
    env,
    internet,
    private: isPrivate,
    autoPause,
    autoResume,
    idlePause,
    allowOut,
    denyOut,
    rule,
    egressProxy,
    dnsServer,
    rm,
    strictFiles,
    volume,
    output,
    url,
  } = options;
  if (autoResume === true && autoPause !== "memory")
    throw new UsageError("--auto-resume needs --auto-pause with memory: traffic can only resume what was paused with its memory");
  if ((idlePause ?? 0) > 0 && autoResume !== true)
    throw new UsageError("--idle-pause needs --auto-pause --auto-resume, so that the next request brings the sandbox back");
  const isAttached = detach !== true && output === undefined && process.stdin.isTTY && process.stdout.isTTY;
  if (rm === true && !isAttached)
    throw new UsageError("--rm deletes the sandbox when its shell ends, and no shell is opened with -d, with --output or without a terminal");
  const network = {
    ...(isPrivate === true ? { allowPublicTraffic: false } : {}),
    ...(allowOut === undefined ? {} : { allowOut }),
    ...(denyOut === undefined ? {} : { denyOut }),
    ...(rule === undefined ? {} : { rules: rule }),
    ...(egressProxy === undefined ? {} : { egressProxy }),
    ...(dnsServer === undefined ? {} : { dnsServers: dnsServer }),
  };
  return withClient(url === undefined ? {} : { url }, async (client) => {
    // Specification, command-line client: always a secure sandbox, which this operation always creates.
    const sandbox = await client.create({
      templateID,
      timeout,
      allow_internet_access: internet,
      ...(metadata === undefined ? {} : { metadata }),
      ...(env === undefined ? {} : { envVars: env }),
      ...(Object.keys(network).length > 0 ? { network } : {}),
      ...(autoPause === undefined ? {} : { autoPause: true, autoPauseMemory: autoPause === "memory" }),
      ...(strictFiles === true ? { strictFiles: true } : {}),
      ...(volume === undefined ? {} : { volumeMounts: volume }),
      ...(autoResume === true ? { autoResume: { enabled: true } } : {}),
      ...(idlePause === undefined ? {} : { idlePauseSeconds: idlePause }),
    });
    if (!isAttached) {
      if (output === "json") printJSON(sandbox);
      else process.stdout.write(`${sandbox.sandboxID}\n`);
      return 0;
    }
    remark(`sandbox ${sandbox.sandboxID}; Ctrl-] leaves the shell open, exit ends it`);
    const { exitCode, isDetached } = await openSession(client, sandbox, { session: "main", detachKey: "ctrl-]" });
    if (rm === true && !isDetached) await client.delete(sandbox.sandboxID);
    else if (!isDetached)
      remark(
        `sandbox ${sandbox.sandboxID} ${autoPause === undefined ? "lives on until its timeout" : "is paused at its timeout"}; svc delete ${sandbox.sandboxID} ends it now`,
      );
    return exitCode;
  });
}
