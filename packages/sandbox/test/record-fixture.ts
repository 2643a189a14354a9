// A sandbox's record and claim with defaults; each test changes the fields it is about.

import { openEgress } from "../src/egress/policy.ts";
import type { Claim, SandboxRecord, Status } from "../src/records/state.ts";
import type { RuntimeHandle } from "../src/runtime/runtime.ts";

export const handle: RuntimeHandle = {
  runtime: "runc",
  runtimeID: "i1",
  directory: "/d",
  pid: 1,
  pidStartTicks: 1,
  endpoint: { kind: "tcp", host: "10.0.0.2" },
  network: undefined,
};

export function claimWith(changes: Partial<Claim> = {}): Claim {
  return {
    startedAtWallMs: 0,
    deadlineMs: 10,
    timeoutSeconds: 300,
    onTimeout: "kill",
    pauseKind: "memory",
    autoResume: false,
    secure: true,
    trafficPrivate: false,
    egress: openEgress,
    maskRequestHost: undefined,
    metadata: {},
    envVars: {},
    user: "user",
    workdir: "",
    alias: "base",
    parentSandboxID: undefined,
    forkDepth: 0,
    ...changes,
  };
}

export function recordWith<S extends Status>(status: S, sandboxID = "i1"): SandboxRecord & { readonly status: S } {
  return {
    sandboxID,
    bootID: "b",
    directory: "/d",
    templateID: "base",
    image: { rootfs: "/t", binds: [] },
    envdVersion: "0.6.13",
    envd: "envd-0",
    guestBootID: "g",
    limits: { cpuCount: 1, memoryMB: 64, diskSizeMB: 64, pids: 64 },
    status,
  };
}
