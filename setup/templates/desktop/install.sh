#!/bin/sh
# The packages of packages.txt without what they recommend; and noVNC's pages alone, because its package brings Node and forty more.
set -eu
export DEBIAN_FRONTEND=noninteractive
cd /tmp
apt-get update
xargs apt-get install -y --no-install-recommends -o Dpkg::Options::=--force-unsafe-io </opt/svc/packages.txt
apt-get download novnc
dpkg-deb -x novnc_*.deb novnc
mv novnc/usr/share/novnc /opt/noVNC
mv novnc/usr/share/doc/novnc /usr/share/doc/
rm -rf novnc novnc_*.deb /var/lib/apt/lists/* /var/cache/apt/archives/*.deb
