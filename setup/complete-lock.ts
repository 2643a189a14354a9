// Completes package-lock.json after `npm install`. If a registry lacks the binaries of other platforms, npm leaves them out of the lock
// file, and `npm ci` refuses it. Run: node setup/complete-lock.ts
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

type Entry = { version?: string; optional?: boolean; os?: string[]; cpu?: string[]; libc?: string[]; dev?: boolean; optionalDependencies?: Record<string, string> };

const path = fileURLToPath(new URL("../package-lock.json", import.meta.url));
const lock = JSON.parse(readFileSync(path, "utf8")) as { packages: Record<string, Entry> };
const systems = ["aix", "android", "darwin", "freebsd", "linux", "netbsd", "openbsd", "openharmony", "sunos", "win32"];
const processors = ["arm", "arm64", "ia32", "loong64", "mips64el", "ppc64", "riscv64", "s390x", "x64"];

let added = 0;
for (const owner of Object.values(lock.packages)) {
  for (const [name, version] of Object.entries(owner.optionalDependencies ?? {})) {
    const place = `node_modules/${name}`;
    if (Object.keys(lock.packages).some((known) => known === place || known.endsWith(`/${place}`))) continue;
    const words = name.split(/[-/]/);
    const os = words.filter((word) => systems.includes(word));
    const cpu = words.filter((word) => processors.includes(word));
    // Only packages that name a platform may be missing; for any other package there must be a different reason.
    if (os.length === 0) continue;
    lock.packages[place] = {
      version,
      ...(cpu.length === 0 ? {} : { cpu }),
      ...(owner.dev === true ? { dev: true } : {}),
      ...(words.includes("musl") ? { libc: ["musl"] } : {}),
      optional: true,
      os,
    };
    added++;
  }
}
const [root, ...rest] = Object.entries(lock.packages);
lock.packages = Object.fromEntries([...(root === undefined ? [] : [root]), ...rest.sort(([a], [b]) => (a < b ? -1 : 1))]);
writeFileSync(path, `${JSON.stringify(lock, undefined, 2)}\n`);
process.stdout.write(`${added} entries added to package-lock.json\n`);
