// A test's own host that sends forever after one UDP request: a peer that continues whatever the sandbox does.
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { readlinkSync } from "node:fs";
import { until } from "@svc/harness/until.ts";
import { killed } from "./network-fixture.ts";

export const streamerAddress = "203.0.113.9";
export const streamerPort = 9;
const hostSide = "203.0.113.8";

const program = `
  const socket = require("node:dgram").createSocket("udp4");
  socket.once("message", (_, from) => setInterval(() => socket.send("more", from.port, from.address), 5));
  process.stdin.once("data", () => socket.bind(${streamerPort}, () => console.log("ready"))).on("end", () => process.exit());
`;

/** Makes link names unique, since the kernel removes a namespace's devices some time after its last process. */
let started = 0;

/** Starts the host; needs root. Its namespace ends with its only process. */
export async function startStreamer(): Promise<AsyncDisposable> {
  const server = spawn("unshare", ["--net", process.execPath, "-e", program], { stdio: ["pipe", "pipe", "inherit"] });
  const link = `st${process.pid % 10_000_000}n${started++}`;
  await using undo = new AsyncDisposableStack();
  undo.defer(() => killed(server));
  await inNamespaceOfItsOwn(server);
  const lines = [
    `link add ${link} type veth peer name out0 netns ${server.pid}`,
    `addr add ${hostSide}/32 dev ${link}`,
    `link set ${link} up`,
    `route replace ${streamerAddress}/32 dev ${link} src ${hostSide}`,
  ];
  execFileSync("ip", ["-batch", "-"], { input: lines.join("\n") });
  const inside = [`addr add ${streamerAddress}/32 dev out0`, "link set out0 up", `route add ${hostSide} dev out0`, `route add default via ${hostSide}`];
  execFileSync("nsenter", ["-t", String(server.pid), "-n", "ip", "-batch", "-"], { input: inside.join("\n") });
  server.stdin.write("go\n");
  await once(server.stdout, "data");
  return undo.move();
}

async function inNamespaceOfItsOwn(server: ChildProcess): Promise<void> {
  const ours = readlinkSync("/proc/self/ns/net");
  await until("the namespace", () => (readlinkSync(`/proc/${server.pid}/ns/net`) === ours ? undefined : true), 5);
}
