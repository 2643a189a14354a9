// Prepares a foreign root for clients: adds the user `user`, a shell at the expected path, and PATH for login shells.
import type { Chain } from "./build-record.ts";
import { type Job, type layered, say } from "./builder.ts";
import { script, shellOf } from "./run-step.ts";

const VERSION = 1;

/** Its output on stdout goes to the build's log. It uses only the shell and programs that every root has: sed, grep, mkdir, chown. */
const preparation = `
for folder in tmp var/tmp; do [ -d /$folder ] || mkdir -p /$folder; chmod 1777 /$folder; done
for folder in proc sys dev run etc root; do [ -d /$folder ] || mkdir -p /$folder; done
[ -f /etc/passwd ] || echo 'root:x:0:0:root:/root:/bin/sh' >/etc/passwd
[ -f /etc/group ] || echo 'root:x:0:' >/etc/group
if [ ! -e /bin/bash ]; then
  printf '#!/bin/sh\\n# The image has no bash; its own shell answers to the name.\\nexec /bin/sh "$@"\\n' >/bin/bash
  chmod 755 /bin/bash
  echo 'the image has no bash: /bin/bash runs its /bin/sh'
fi
if ! grep -q '^user:' /etc/passwd; then
  id=1000
  while grep -q "^[^:]*:[^:]*:$id:" /etc/passwd /etc/group; do id=$((id + 1)); done
  grep -q '^user:' /etc/group || echo "user:x:$id:" >>/etc/group
  echo "user:x:$id:$id:user:/home/user:/bin/bash" >>/etc/passwd
  [ ! -f /etc/shadow ] || grep -q '^user:' /etc/shadow || echo 'user:*:19000:0:99999:7:::' >>/etc/shadow
  echo "the user 'user' was added, number $id"
fi
home=$(sed -n 's/^user:[^:]*:[^:]*:[^:]*:[^:]*:\\([^:]*\\):.*/\\1/p' /etc/passwd)
if [ ! -d "$home" ]; then mkdir -p "$home"; chown user: "$home"; fi
if [ -d /etc/sudoers.d ] && [ ! -e /etc/sudoers.d/user ]; then
  echo 'user ALL=(ALL:ALL) NOPASSWD: ALL' >/etc/sudoers.d/user
  chmod 440 /etc/sudoers.d/user
fi
mkdir -p /etc/profile.d
printf '# A login shell keeps the PATH of the template, which /etc/profile would replace.\\nif [ -n "\${SVC_TEMPLATE_PATH-}" ]; then PATH=$SVC_TEMPLATE_PATH; export PATH; fi\\n' >/etc/profile.d/zz-svc-path.sh
`;

export async function prepare(job: Job, chain: Chain, inLayer: typeof layered): Promise<Chain> {
  const { cache, layers } = job.builder;
  const key = `prepare:${VERSION}:${JSON.stringify(chain)}`;
  const known = cache.find(key)?.layerID;
  if (known != null && layers.info(known) !== undefined) return { ...chain, layers: [...chain.layers, known] };
  const done = await inLayer(job, chain, "preparation of an image", async (guest) => {
    await shellOf(job, guest);
    for (const line of await script(job, guest, preparation, [], "the image cannot be made fit for sandboxes")) say(job, line);
  });
  cache.keep(key, done.layer?.layerID);
  return done.chain;
}
