// A slot under a real gVisor sandbox, whose kernel brings a network stack of its own.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { needs } from "@svc/harness/needs.ts";
import { publicAddresses, startOutside } from "@svc/harness/outside.ts";
import { open, openFixture, probeFile } from "./network-fixture.ts";
import type { Probe } from "./network-probe.ts";

void test("gVisor's own network stack uses a sandbox's address, route, DNS and rules", needs("root", "ip", "nft", "unshare", "runsc"), async () => {
  await using outside = await startOutside();
  await using fixture = await openFixture({ dns: { upstreams: [outside.dnsServer] } });
  const slot = await fixture.networks.attach(open);
  const probes: Probe[] = [
    { try: "tcp", host: publicAddresses[0], port: 80 },
    { try: "udp", host: publicAddresses[1], port: 7 },
    { try: "resolve", server: slot.gatewayAddress, name: "www.example.com" },
    { try: "resolve", server: slot.gatewayAddress, name: "long.example.com" },
    { try: "tcp", host: "169.254.169.254", port: 80 },
    { try: "tcp", host: slot.gatewayAddress, port: 22 },
    { try: "tcp", host: "2001:db8::1", port: 80 },
  ];
  const bundle = join(fixture.home, "bundle");
  mkdirSync(bundle);
  writeFileSync(
    join(bundle, "config.json"),
    JSON.stringify({
      ociVersion: "1.0.2",
      process: {
        user: { uid: 0, gid: 0 },
        args: [process.execPath, "--disable-warning=ExperimentalWarning", probeFile, JSON.stringify(probes)],
        env: ["PATH=/usr/bin:/bin"],
        cwd: "/",
        capabilities: {},
      },
      root: { path: "/", readonly: true },
      mounts: [{ destination: "/proc", type: "proc", source: "proc" }],
      linux: { namespaces: [...["pid", "ipc", "uts", "mount"].map((type) => ({ type })), { type: "network", path: slot.netnsPath }] },
    }),
  );
  const runsc = [`--root=${join(fixture.home, "runsc")}`, "--network=sandbox", "--overlay2=none", "--ignore-cgroups", "--host-settings=ignore"];
  const run = promisify(execFile);
  const { stdout } = await run(process.env["SVC_RUNSC"] ?? "", [...runsc, "run", "-bundle", bundle, `nettest${process.pid}`]).finally(() =>
    // runsc leaves an empty namespace mounted in its folder.
    run("umount", [join(fixture.home, "runsc/null-netns")]).catch(() => {}),
  );
  assert.deepEqual(JSON.parse(stdout), ["connected", "answered hello", "8.8.8.8", "8.8.8.8", "ECONNREFUSED", "ECONNREFUSED", "ENETUNREACH"]);
});
