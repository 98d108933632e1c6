#!/usr/bin/env bash
# Runs the tests as an ordinary user (nobody), which skips tests that need root. Root runs
# this script; it copies the files that git tracks. Arguments are packages; the default is
# all but test/e2e.
#
#   test/ordinary.sh
#   test/ordinary.sh ./internal/deliver/staging ./nri
set -euo pipefail
GO=${GO:-go}
cd "$(dirname "$0")/.."
if [ "$(id -u)" != 0 ]; then
  echo "ordinary.sh: only root can become another user; an ordinary user runs the tests as they are" >&2
  exit 1
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
git ls-files -z | xargs -0 cp --parents -t "$tmp"
mkdir "$tmp/.modules" "$tmp/.home"
chmod 755 "$tmp"
chown -R nobody "$tmp"
run() { # run DIRECTORY PACKAGES...: the module cache, which is root's, is mounted where nobody finds it
  (cd "$tmp/$1" && shift && unshare --mount bash -c '
    mount --bind "$0" "$1/.modules" && mount -o remount,bind,ro "$1/.modules" && cd . && home=$1 && shift &&
    exec env -i PATH="$PATH" HOME="$home/.home" TMPDIR="$home/.home" GOMODCACHE="$home/.modules" GOPROXY=off GOTOOLCHAIN=local GOFLAGS=-buildvcs=false \
      setpriv --reuid nobody --regid nogroup --clear-groups "$@"' "$($GO env GOMODCACHE)" "$tmp" "$GO" test "$@")
}
failed=0
if [ $# -gt 0 ]; then
  run . "$@" || failed=1
else
  run . ./... || failed=1
  # shellcheck disable=SC2046
  run test $(cd test && $GO list ./... | grep -v /test/e2e) || failed=1
fi
exit "$failed"
