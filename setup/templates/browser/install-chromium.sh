#!/bin/sh
# Debian's Chromium with fonts, without what it recommends; and the library that Playwright's driver for Python needs.
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install -y --no-install-recommends -o Dpkg::Options::=--force-unsafe-io chromium fonts-dejavu-core fonts-liberation fonts-noto-color-emoji libatomic1
rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb
