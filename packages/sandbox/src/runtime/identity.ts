// The few files in /etc that differ between sandboxes, as a small directory tree and as a tar archive of it.
import { randomBytes } from "node:crypto";
import { chmod, mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";

export type IdentityFiles = ReadonlyMap<string, string>;

/** Without `nameserver` the sandbox has no network of its own and no resolver. */
export function identityFiles(hostname: string, nameserver: string | undefined): IdentityFiles {
  return new Map([
    ["etc/hostname", `${hostname}\n`],
    // The name must resolve without DNS: sudo looks it up at every call.
    ["etc/hosts", `127.0.0.1\tlocalhost\n127.0.1.1\t${hostname}\n::1\tlocalhost ip6-localhost ip6-loopback\n`],
    ["etc/resolv.conf", nameserver === undefined ? "" : `nameserver ${nameserver}\noptions timeout:2 attempts:2\n`],
    ["etc/machine-id", `${randomBytes(16).toString("hex")}\n`],
  ]);
}

/** Directories of the archive and the tree; /tmp is included because runsc mounts a tmpfs over an empty one. */
const directories = [
  { path: "etc", mode: 0o755 },
  { path: "tmp", mode: 0o1777 },
  { path: "tmp/.X11-unix", mode: 0o1777 },
] as const;

export async function writeTree(root: string, files: IdentityFiles): Promise<void> {
  await mkdir(root, { recursive: true });
  for (const { path, mode } of directories) {
    await mkdir(join(root, path), { recursive: true });
    await chmod(join(root, path), mode); // mkdir's own mode is cut by the umask
  }
  for (const [path, text] of files) {
    await mkdir(dirname(join(root, path)), { recursive: true });
    await writeFile(join(root, path), text);
    await chmod(join(root, path), 0o644);
  }
}

/** Returns a ustar archive; runsc unpacks it into the sandbox's upper layer and requires an entry for every parent, including the root. */
export function tarOf(files: IdentityFiles, now: number): Buffer {
  const mtime = Math.floor(now / 1000);
  const blocks: Buffer[] = [entry("./", 0o755, "5", "", mtime)];
  for (const { path, mode } of directories) blocks.push(entry(`./${path}/`, mode, "5", "", mtime));
  for (const [path, text] of files) blocks.push(entry(`./${path}`, 0o644, "0", text, mtime));
  return Buffer.concat([...blocks, Buffer.alloc(1024)]);
}

/** Returns the entry of one directory, 512 bytes. */
export function directoryEntry(path: string, mode: number, now: number): Buffer {
  return entry(`./${path}/`, mode, "5", "", Math.floor(now / 1000));
}

function entry(name: string, mode: number, kind: "0" | "5", text: string, mtime: number): Buffer {
  const body = Buffer.from(text);
  const header = Buffer.alloc(512);
  const octal = (value: number, offset: number, digits: number) => header.write(`${value.toString(8).padStart(digits, "0")}\0`, offset, "latin1");
  header.write(name, 0, 100, "latin1");
  octal(mode, 100, 7);
  octal(0, 108, 7); // owner: root
  octal(0, 116, 7);
  octal(body.length, 124, 11);
  octal(mtime, 136, 11);
  header.write("        ", 148, "latin1"); // the checksum counts itself as spaces
  header.write(kind, 156, "latin1");
  header.write("ustar\x0000", 257, "latin1");
  octal(
    header.reduce((sum, byte) => sum + byte, 0),
    148,
    6,
  );
  return Buffer.concat([header, body, Buffer.alloc((512 - (body.length % 512)) % 512)]);
}
