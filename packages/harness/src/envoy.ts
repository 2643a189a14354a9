// Starts a real Envoy as a gateway that asks an endpoint picker where each request goes, configured as the Gateway API Inference Extension says.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { endWithUs } from "./children.ts";
import { freePorts } from "./ports.ts";
import { endProcess } from "./server-process.ts";
import { until } from "./until.ts";

const DESTINATION = "x-gateway-destination-endpoint";

export type Envoy = { readonly url: string; log(): string } & AsyncDisposable;

/** `engines`: their URLs; Envoy itself chooses none of them as long as the picker answers. */
export async function startEnvoy(pickerPort: number, engines: readonly string[]): Promise<Envoy> {
  const folder = mkdtempSync(join(tmpdir(), "svc-test-envoy-"));
  const [port = 0, admin = 0] = await freePorts(2);
  const address = (at: number) => ({ socket_address: { address: "127.0.0.1", port_value: at } });
  const typed = (type: string, rest: object) => ({ "@type": `type.googleapis.com/${type}`, ...rest });
  const extProc = typed("envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor", {
    grpc_service: { envoy_grpc: { cluster_name: "picker" }, timeout: "60s" },
    failure_mode_allow: false,
    message_timeout: "60s",
    metadata_options: { receiving_namespaces: { untyped: ["envoy.lb"] } },
    processing_mode: {
      request_header_mode: "SEND",
      response_header_mode: "SEND",
      request_body_mode: "FULL_DUPLEX_STREAMED",
      response_body_mode: "FULL_DUPLEX_STREAMED",
      request_trailer_mode: "SEND",
      response_trailer_mode: "SEND",
    },
  });
  const manager = typed("envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", {
    stat_prefix: "in",
    stream_idle_timeout: "300s",
    route_config: {
      virtual_hosts: [
        {
          name: "all",
          domains: ["*"],
          routes: [{ match: { prefix: "/" }, route: { cluster: "engines", timeout: "300s", retry_policy: { retry_on: "connect-failure", num_retries: 2 } } }],
        },
      ],
    },
    http_filters: [
      { name: "picker", typed_config: extProc },
      { name: "router", typed_config: typed("envoy.extensions.filters.http.router.v3.Router", {}) },
    ],
  });
  const policy = (type: string, rest: object) => ({
    policies: [{ typed_extension_config: { name: type, typed_config: typed(`envoy.extensions.load_balancing_policies.${type}`, rest) } }],
  });
  const http2 = {
    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": typed("envoy.extensions.upstreams.http.v3.HttpProtocolOptions", {
      explicit_http_config: { http2_protocol_options: {} },
    }),
  };
  const config = {
    admin: { address: address(admin) },
    static_resources: {
      listeners: [{ name: "in", address: address(port), filter_chains: [{ filters: [{ name: "http", typed_config: manager }] }] }],
      clusters: [
        {
          name: "picker",
          type: "STATIC",
          connect_timeout: "10s",
          typed_extension_protocol_options: http2,
          load_assignment: { cluster_name: "picker", endpoints: [{ lb_endpoints: [{ endpoint: { address: address(pickerPort) } }] }] },
        },
        {
          name: "engines",
          type: "STATIC",
          connect_timeout: "10s",
          load_balancing_policy: policy("override_host.v3.OverrideHost", {
            override_host_sources: [{ metadata: { key: "envoy.lb", path: [{ key: DESTINATION }] } }, { header: DESTINATION }],
            fallback_policy: policy("round_robin.v3.RoundRobin", {}),
          }),
          load_assignment: {
            cluster_name: "engines",
            endpoints: [{ lb_endpoints: engines.map((url) => ({ endpoint: { address: address(Number(new URL(url).port)) } })) }],
          },
        },
      ],
    },
  };
  const file = join(folder, "envoy.json");
  writeFileSync(file, JSON.stringify(config));
  const child = spawn(process.env["SVC_ENVOY"] ?? "envoy", ["-c", file, "--concurrency", "1", "--log-level", "warning", "--disable-hot-restart"], {
    stdio: ["ignore", "ignore", "pipe"],
  });
  endWithUs(child);
  let said = "";
  child.stderr.on("data", (chunk: Buffer) => {
    said = (said + chunk.toString()).slice(-50_000);
  });
  await until("Envoy is ready", async () => {
    if (child.exitCode !== null) throw new Error(`Envoy ended with ${child.exitCode}: ${said.slice(-4000)}`);
    const status = await fetch(`http://127.0.0.1:${admin}/ready`).then(
      (answer) => answer.status,
      () => 0,
    );
    return status === 200 || undefined;
  });
  return {
    url: `http://127.0.0.1:${port}`,
    log: () => said,
    async [Symbol.asyncDispose]() {
      await endProcess(child, "SIGKILL");
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
