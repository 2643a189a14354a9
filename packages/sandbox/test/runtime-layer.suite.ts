// Exported layers of sandboxes, for every driver: mounted over the template, they show the same files as the sandbox.
import assert from "node:assert/strict";
import { mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import type { RuntimeName } from "@svc/sandbox/runtime/runtime.ts";
import { image, isRoot, openFixture, run } from "./runtime-fixture.ts";

type It = (sentence: string, body: () => Promise<void>) => void;

const changes = `cd /; rm -rf /usr/share/doc/bash; mkdir /usr/share/doc/bash; echo new >/usr/share/doc/bash/new; rm -rf /usr/share/doc/dash; rm /etc/issue
rm /usr/share/doc/tar/copyright; mv /usr/share/doc/coreutils /usr/share/doc/moved; echo x >>/usr/share/doc/sed/copyright; chmod 700 /usr/share/doc/sed
mkdir -p /opt/x/d; echo a >/opt/x/a; ln /opt/x/a /opt/x/b; cp /bin/true /opt/x/suid; chmod 6755 /opt/x/suid; chown 1234:4321 /opt/x/a; ln -s /nowhere /opt/x/l
rm /usr/share/doc/grep/copyright; mkdir /usr/share/doc/grep/copyright; rm -r /usr/share/doc/gzip; echo file >/usr/share/doc/gzip; chown -h 5:5 /opt/x/l
printf 'na me\\n' >'/opt/x/na me'; dd if=/dev/zero of=/opt/x/sparse bs=1 count=1 seek=100M 2>/dev/null; echo 10.9.8.7 mine >>/etc/hosts; echo kept >/etc/kept
python3 - <<'X'
import os, struct
os.setxattr('/opt/x/a', 'user.bytes', b'\\x00\\x80\\xff'); os.setxattr('/opt/x/a', 'user.empty', b''); os.setxattr('/opt/x/d', 'user.text', b'text')
try:
    for name, bits in (('net', 1 << 13), ('setuid', 1 << 7)):
        open('/opt/x/' + name, 'w').close(); os.setxattr('/opt/x/' + name, 'security.capability', struct.pack('<IIIII', 0x02000001, bits, 0, 0, 0))
    acl = struct.pack('<I', 2) + b''.join(struct.pack('<HHI', *e) for e in ((1, 6, 0xffffffff), (2, 4, 1000), (4, 4, 0xffffffff), (16, 4, 0xffffffff), (32, 4, 0xffffffff)))
    open('/opt/x/acl', 'w').close(); os.setxattr('/opt/x/acl', 'system.posix_acl_access', acl)
except OSError as error: print('not here:', error)
X
find /opt -exec touch -h -d @1000000000 {} +`; // gVisor's archive stores whole seconds

/** Prints all preserved properties of every file in these directories. Link counts and sizes of directories depend on the file system. */
const show = `import os, sys, hashlib
root = sys.argv[1]
seen = {}
for top in ('usr/share/doc', 'opt', 'etc'):
    for folder, folders, files in os.walk(os.path.join(root, top)):
        for name in sorted(folders + files):
            path = os.path.join(folder, name); s = os.lstat(path); short = path[len(root):].lstrip('/')
            if short in ('etc/hosts', 'etc/hostname', 'etc/resolv.conf', 'etc/machine-id', 'etc/mtab') or short.startswith('etc/ssl'): continue
            isfile = (s.st_mode & 0o170000) == 0o100000
            what = os.readlink(path) if os.path.islink(path) else hashlib.sha1(open(path, 'rb').read()).hexdigest() if isfile else ''
            attributes = {} if os.path.islink(path) else {a: os.getxattr(path, a).hex() for a in sorted(os.listxattr(path)) if not a.startswith(('trusted.', 'user.overlay'))}
            same = seen.setdefault((s.st_dev, s.st_ino), short) if isfile and s.st_nlink > 1 else ''
            print(short, oct(s.st_mode), s.st_uid, s.st_gid, s.st_size if isfile else '', int(s.st_mtime) if short.startswith('opt') and isfile else '', what, attributes, same)
`;

export function layerTests(name: RuntimeName, it: It): void {
  // A plain user's overlay file system uses other marks, and only that user can mount it.
  if (!isRoot) return;

  it("an exported layer over the template shows what the sandbox showed", async () => {
    await using fixture = await openFixture(name);
    const handle = await fixture.start();
    const made = await run(handle, changes);
    assert.equal(`${made.stdout}${made.stderr}`, "");
    const showing = await run(handle, `cat >/run/show.py <<'X'\n${show}X\npython3 /run/show.py / | sort`);
    const layer = fixture.folder();
    await fixture.runtime.exportLayer(handle, layer);
    assert.ok(!readdirSync(join(layer, "etc")).some((file) => ["hosts", "hostname", "resolv.conf", "machine-id"].includes(file)));
    assert.equal((await run(handle, "echo continues")).stdout, "continues\n");

    const merged = join(fixture.home, "merged");
    const scriptFile = join(fixture.home, "show.py");
    mkdirSync(merged);
    await fixture.spawner.check(["mount", "-t", "overlay", "-o", `ro,lowerdir=${layer}:${image().rootfs}`, "overlay", merged]);
    try {
      await fixture.spawner.check(["sh", "-c", 'cat >"$1"', "sh", scriptFile], { input: show });
      const { stdout } = await fixture.spawner.run(["sh", "-c", 'python3 "$1" "$2" | sort', "sh", scriptFile, merged]);
      const [inside, outside] = [showing.stdout.split("\n"), stdout.split("\n")];
      assert.deepEqual(
        outside.filter((line) => !inside.includes(line)),
        [],
        "no file is added",
      );
      assert.deepEqual(
        inside.filter((line) => !outside.includes(line)),
        [],
        "no file is missing",
      );
      assert.ok(inside.some((line) => line.includes("user.bytes")) && inside.length > 500);
    } finally {
      await fixture.spawner.run(["umount", merged]);
    }
  });
}
