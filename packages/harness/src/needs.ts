// Declares what a test needs of the host: a missing program fails in CI; on a laptop the test is skipped and names it.
import { accessSync, constants, existsSync } from "node:fs";
import { delimiter, join } from "node:path";

type Need =
  | "root"
  | "runsc"
  | "envd"
  | "base"
  | "object-server"
  | "python-clients"
  | "mooncake-newest"
  | "python-vllm"
  | "python3-yaml"
  | "python3-fusepy"
  | (string & {});

/**
 * Options for `test(name, needs("root", "runsc"), …)`. A need is root, runsc, envd, base (the template), object-server (S3-compatible),
 * python-clients (the E2B SDKs), mooncake-newest (its newest client), python-vllm (`./svc setup --only python-vllm`), envoy, python3-yaml, python3-fusepy, a path, or a program on the PATH.
 */
export function needs(...all: Need[]): { skip: string | false } {
  const missing = all.filter((need) => !has(need));
  if (missing.length === 0) return { skip: false };
  const says = `missing on this host: ${missing.join(", ")}; ./svc setup installs what can be installed`;
  if (process.env["CI"] === "true" && missing.some((need) => !hostsOwn.has(need))) throw new Error(says);
  return { skip: says };
}

/** Programs that the usual set-up does not install and no server uses; tests with them run only on hosts that have them. */
const hostsOwn: ReadonlySet<Need> = new Set(["python-vllm", "kubectl", "systemd-analyze", "buildah", "containerd", "ctr"]);

function has(need: Need): boolean {
  switch (need) {
    case "root":
      return process.getuid?.() === 0;
    case "runsc":
      return existsSync(process.env["SVC_RUNSC"] ?? "");
    case "envd":
      return existsSync(process.env["SVC_ENVD"] ?? "");
    case "object-server":
      return existsSync(process.env["SVC_OBJECT_SERVER"] ?? "");
    case "python-clients":
      return existsSync(process.env["SVC_PYTHON_CLIENTS"] ?? "");
    case "mooncake-newest":
      return existsSync(process.env["SVC_MOONCAKE_NEWEST"] ?? "");
    case "envoy":
      return existsSync(process.env["SVC_ENVOY"] ?? "");
    case "python-vllm":
      return existsSync(join(process.env["SVC_PYTHON_VLLM"] ?? "", ".works"));
    case "python3-yaml":
      return existsSync("/usr/lib/python3/dist-packages/yaml/__init__.py");
    case "python3-fusepy":
      return existsSync("/usr/lib/python3/dist-packages/fusepy.py");
    case "base":
      return existsSync(process.env["SVC_TEMPLATES_DIR"] ?? "");
    default:
      return need.startsWith("/") ? existsSync(need) : onPath(need);
  }
}

export function onPath(program: string): boolean {
  return [...(process.env["PATH"] ?? "").split(delimiter), "/usr/sbin", "/sbin"].some((directory) => {
    try {
      accessSync(join(directory, program), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}
