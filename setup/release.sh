# `./svc release [--out DIR] [--check]`: builds what others install of this version, and notes the release. Sourced by `svc`.
#
#   DIR/svc-VERSION-linux-ARCH.tar.gz   the tree with everything prebuilt: tar x, then ./svc up, without compiler or registry
#   DIR/svc-contract-VERSION.tgz, svc-store-client-VERSION.tgz   npm packs
#   DIR/svc_client-VERSION-py3-none-any.whl   the Python client
#   DIR/SHA256SUMS

say() { printf 'svc: %s\n' "$*" >&2; }
usage() {
  cat <<'TEXT'
Usage: ./svc release [--out DIR] [--check]
Builds this version's archive, npm packs and Python wheel into DIR (default: dist), and notes its commit in releases.json.
--check stops after the checks: a clean tree, a commit of main, a dated section of the version in CHANGELOG.md, and no release of that version.
Example: ./svc release --out /tmp/release
TEXT
}

out=$SVC_ROOT/dist only_check=no
while (($#)); do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --check) only_check=yes ;;
    --out) [[ ${2-} ]] || { say "release: --out expects a folder, got none; see ./svc release --help"; exit 2; }; out=$2; shift ;;
    *) say "release: expected --out DIR or --check, got $1; see ./svc release --help"; exit 2 ;;
  esac
  shift
done
[[ $out == /* ]] || out=$PWD/$out

version=$(sed -n 's/^  "version": "\(.*\)",$/\1/p' "$SVC_ROOT/package.json")
refuse() { say "release: $*"; exit 1; }
type -P git >/dev/null || refuse "git is missing; the archive holds what git tracks"
commit=$(git -C "$SVC_ROOT" rev-parse --verify HEAD 2>/dev/null) || refuse "$SVC_ROOT is not a git checkout; release from a clone"
[[ -z $(git -C "$SVC_ROOT" status --porcelain) ]] || refuse "the tree has changes that are not committed; commit them first"
heading=$(grep -m 1 '^## ' "$SVC_ROOT/CHANGELOG.md" || true)
[[ $heading =~ ^"## $version ("[0-9]{4}-[0-9]{2}-[0-9]{2}")"$ ]] ||
  refuse "expected the first section of CHANGELOG.md to be \"## $version (YYYY-MM-DD)\", got \"$heading\"; describe the release there, with its date"
# Another branch may be rebased, and tests could not build the release's tree from a commit that is gone.
for branch in origin/main main; do
  git -C "$SVC_ROOT" rev-parse --verify --quiet "$branch^{commit}" >/dev/null || continue
  git -C "$SVC_ROOT" merge-base --is-ancestor "$commit" "$branch" && on_main=yes || : "${on_main:=no}"
done
[[ ${on_main-} != no ]] || refuse "commit ${commit:0:12} is not on main; a release is cut from a commit that has landed there"
! grep -q "\"version\": \"$version\"" "$SVC_ROOT/releases.json" || refuse "releases.json has a release $version already; raise the version in package.json"
if [[ $only_check == yes ]]; then say "release: $version may be built from commit ${commit:0:12}"; exit 0; fi

# The addons need the C library that they were built with, or a newer one.
oldest=$(. /etc/os-release && echo "$ID-${VERSION_CODENAME-}")
[[ $oldest == debian-bookworm ]] || say "release: this is $oldest, and the addons may not load on Debian 12; build releases there"
install_for setup
mkdir -p "$out"
source "$SVC_ROOT/setup/release/archive.sh"
build_archive "$out" "$version"
"$SVC_NODE" --disable-warning=ExperimentalWarning "$SVC_ROOT/setup/release/main.ts" "$out"
(cd "$out" && sha256sum -- *.tar.gz *.tgz *.whl >SHA256SUMS)
"$SVC_NODE" -e '
  const { readFileSync, writeFileSync } = require("node:fs");
  const [path, version, commit] = process.argv.slice(1);
  const known = JSON.parse(readFileSync(path, "utf8"));
  const releases = [...known.releases, { version, commit, date: new Date().toISOString().slice(0, 10) }];
  writeFileSync(path, `${JSON.stringify({ releases }, undefined, 2)}\n`);
' "$SVC_ROOT/releases.json" "$version" "$commit"
say "release: $version of commit ${commit:0:12} is in $out; commit releases.json, and tag the commit if you like"
