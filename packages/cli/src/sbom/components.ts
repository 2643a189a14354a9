// The parts of this installation: npm packages of the lock file, Go modules in its programs, Node, and the packages of the system.
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { goModulesOf } from "./go-modules.ts";

export type Part = {
  readonly type: "library" | "platform";
  /** The kind of package, as package URLs call it. */
  readonly kind: "npm" | "golang" | "deb" | "generic";
  readonly namespace?: string;
  readonly name: string;
  readonly version: string;
  readonly qualifiers?: Readonly<Record<string, string>>;
  readonly license?: string;
  /** SHA-512 in hexadecimal. */
  readonly sha512?: string;
};

type LockEntry = { version?: string; license?: string; integrity?: string; dev?: boolean; link?: boolean; name?: string };
const MAX_LIST_BYTES = 64 * 2 ** 20;

/** The packages that are installed for users; an optional one of another platform is in the lock file alone. */
export function npmParts(root: string): Part[] {
  const { packages } = JSON.parse(readFileSync(`${root}/package-lock.json`, "utf8")) as { packages: Record<string, LockEntry> };
  return Object.entries(packages).flatMap(([place, { version, license, integrity, dev, link, name: alias }]) => {
    const at = place.lastIndexOf("node_modules/");
    if (at < 0 || dev === true || link === true || version === undefined || !existsSync(`${root}/${place}`)) return [];
    const name = alias ?? place.slice(at + "node_modules/".length);
    const [namespace, own] = name.startsWith("@") ? (name.split("/") as [string, string]) : [undefined, name];
    const sha512 = /^sha512-(\S+)/.exec(integrity ?? "")?.[1];
    return [
      {
        type: "library" as const,
        kind: "npm" as const,
        ...(namespace === undefined ? {} : { namespace }),
        name: own,
        version,
        ...(license === undefined ? {} : { license }),
        ...(sha512 === undefined ? {} : { sha512: Buffer.from(sha512, "base64").toString("hex") }),
      },
    ];
  });
}

export function goParts(programs: readonly (string | undefined)[]): Part[] {
  return programs.flatMap((program) => {
    if (program === undefined || !existsSync(program)) return [];
    return goModulesOf(program).flatMap(({ path, version: given }) => {
      // A program that was built from a folder has no version of its own; set-up names the folder of runsc after its source's.
      const version = given === "(devel)" ? /\/runsc\/(v[^/]+)\//.exec(program)?.[1] : given;
      if (version === undefined) return [];
      const at = path.lastIndexOf("/");
      return [{ type: "library" as const, kind: "golang" as const, ...(at < 0 ? {} : { namespace: path.slice(0, at) }), name: path.slice(at + 1), version }];
    });
  });
}

export const nodePart = (): Part => ({ type: "platform", kind: "generic", name: "node", version: process.versions.node });

/** All installed Debian packages; empty where the system is not one of Debian's family. */
export function systemParts(): Part[] {
  let list: string;
  try {
    // biome-ignore lint/suspicious/noTemplateCurlyInString: dpkg-query replaces these.
    const format = "${db:Status-Abbrev}\\t${Package}\\t${Version}\\t${Architecture}\\n";
    list = execFileSync("dpkg-query", ["--show", `--showformat=${format}`], {
      encoding: "utf8",
      maxBuffer: MAX_LIST_BYTES,
      stdio: ["ignore", "pipe", "ignore"],
    });
  } catch {
    return [];
  }
  const release = existsSync("/etc/os-release") ? readFileSync("/etc/os-release", "utf8") : "";
  const namespace = /^ID=["']?([a-z0-9._-]+)/m.exec(release)?.[1] ?? "debian";
  return list.split("\n").flatMap((line) => {
    const [state, name, version, arch] = line.split("\t");
    if (state?.startsWith("ii") !== true || name === undefined || version === undefined || arch === undefined) return [];
    return [{ type: "library", kind: "deb", namespace, name, version, qualifiers: { arch } } as const];
  });
}
