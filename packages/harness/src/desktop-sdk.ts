// E2B's desktop SDK for Python in a folder of its own, because only the long tests of the desktop need it.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const PACKAGES = ["e2b-desktop==2.7.2", "e2b==2.63.0"];
const INSTALL_MS = 900_000;

/** Returns the folder for PYTHONPATH, from the cache or from the package index. */
export function desktopSdk(): string {
  const all = join(process.env["SVC_CACHE"] ?? tmpdir(), "frameworks");
  const folder = join(all, `desktop-${PACKAGES.join("-").replace(/[^a-z0-9.]+/gi, "-")}`);
  if (existsSync(folder)) return folder;
  mkdirSync(all, { recursive: true });
  const making = mkdtempSync(join(all, ".desktop-"));
  try {
    const args = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", "--target", making, ...PACKAGES];
    const { status, stderr } = spawnSync("python3", args, { env: { ...process.env, PIP_USER: "0", PYTHONPATH: "" }, timeout: INSTALL_MS, encoding: "utf8" });
    if (status !== 0) throw new Error(`pip ended with ${status}: ${stderr}`);
    renameSync(making, folder);
  } finally {
    rmSync(making, { recursive: true, force: true });
  }
  return folder;
}
