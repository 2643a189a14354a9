// Says what a test needs of the host: missing programs fail in CI, and are named and skipped on a laptop.
import { accessSync, constants, existsSync } from "node:fs";
import { delimiter, join } from "node:path";

type Need = "root" | "runsc" | "envd" | "base" | "python-clients" | (string & {});

/** For `test(name, needs("root", "runsc"), …)`. A need is root, runsc, envd, base (the template), python-clients (the E2B SDKs), or a program on the PATH. */
export function needs(...all: Need[]): { skip: string | false } {
  const missing = all.filter((need) => !has(need));
  if (missing.length === 0) return { skip: false };
  const says = `missing on this host: ${missing.join(", ")}; ./svc setup installs what can be installed`;
  if (process.env["CI"] === "true") throw new Error(says);
  return { skip: says };
}

function has(need: Need): boolean {
  switch (need) {
    case "root":
      return process.getuid?.() === 0;
    case "runsc":
      return existsSync(process.env["SVC_RUNSC"] ?? "");
    case "envd":
      return existsSync(process.env["SVC_ENVD"] ?? "");
    case "python-clients":
      return existsSync(process.env["SVC_PYTHON_CLIENTS"] ?? "");
    case "base":
      return existsSync(process.env["SVC_TEMPLATES_DIR"] ?? "");
    default:
      return onPath(need);
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
