#!/usr/bin/env bash
# Runs the tests of packages of this module, and stops each repeatedly for one to three
# seconds at random points. A test that depends on timing fails here. Arguments are the
# directories of packages; ARGS has arguments for the tests.
#
#   test/paused.sh internal/deliver/staging nri
#   ARGS='-test.run TestUpdateAddsAndRemovesSockets -test.count 5' test/paused.sh internal/deliver/staging
set -euo pipefail
GO=${GO:-go}
cd "$(dirname "$0")/.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failed=0
for pkg in "$@"; do
  $GO test -c -race -o "$tmp/x.test" "./$pkg"
  (cd "$pkg" && exec setsid "$tmp/x.test" -test.shuffle=on ${ARGS:-}) >"$tmp/log" 2>&1 &
  test=$!
  while kill -0 "$test" 2>/dev/null; do
    # Stop the whole session, because tests start processes.
    all=$(ps -o pid= --sid "$test" || true)
    kill -STOP $all 2>/dev/null || true
    sleep "$((1 + RANDOM % 4 / 3 * 2)).2"
    kill -CONT $all 2>/dev/null || true
    sleep "0.$((RANDOM % 3))$((1 + RANDOM % 9))"
  done
  if wait "$test"; then
    echo "ok	$pkg"
  else
    cat "$tmp/log"
    failed=1
  fi
done
exit "$failed"
