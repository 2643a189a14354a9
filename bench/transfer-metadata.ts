// Our metadata server compared with Mooncake's two: a Python program, and the one in its master. Only ours keeps acknowledged records
// through kill -9.
import { spawn } from "node:child_process";
import { freePorts } from "@svc/harness/ports.ts";
import { startMooncakeMaster } from "../packages/store/test/master.ts";
import { eventually } from "../packages/transfer/test/parts.ts";
import { startHttp } from "../packages/transfer/test/services.ts";
import { metadataLoad } from "./transfer-peers.ts";

const CONNECTIONS = 16;
type Keep = (name: string, measured: { readonly perSecond: number; readonly p50: number }) => void;

export async function measureMetadata(rounds: number, seconds: number, withWheel: boolean, keep: Keep): Promise<void> {
  await using ended = new AsyncDisposableStack();
  const servers = new Map<string, string>();
  if (withWheel) {
    const [port = 0, within = 0] = await freePorts(2);
    const python = spawn("python3", ["-m", "mooncake.http_metadata_server", "--host", "127.0.0.1", "--port", String(port)], {
      env: { ...process.env, PYTHONPATH: process.env["SVC_PYTHON_CLIENTS"] ?? "" },
      stdio: "ignore",
    });
    ended.defer(() => void python.kill("SIGKILL"));
    ended.use(
      await startMooncakeMaster(["--enable_http_metadata_server=true", "--http_metadata_server_host=127.0.0.1", `--http_metadata_server_port=${within}`]),
    );
    servers.set("wheel metadata, Python", `http://127.0.0.1:${port}/metadata`).set("wheel metadata, in its master", `http://127.0.0.1:${within}/metadata`);
  }
  servers.set("metadata", ended.use(await startHttp(["--durability=process"])).metadata);
  for (const [name, url] of servers) {
    const answers = () =>
      fetch(`${url}?key=x`).then(
        () => true,
        () => undefined,
      );
    await eventually(answers, `${name} answers`);
  }
  for (let round = 0; round < rounds; round++)
    for (const [name, url] of servers) keep(name, { perSecond: await metadataLoad(url, CONNECTIONS, seconds), p50: 0 });
}
