#!/usr/bin/env bash
# Runs every fuzz target of the given modules for FUZZTIME (5s). A failing input
# is an error, and stays in its package's testdata/fuzz.
#
# Go before 1.27 can end a run that found nothing with "context deadline
# exceeded", when a worker is inside a call as the time ends (go.dev/issue/75804).
# A run with that message and without a failing input is repeated, bounded by calls
# instead of by time, so that it has no deadline. The result of that run counts.
set -euo pipefail
GO=${GO:-go}
top=$(cd "$(dirname "$0")/.." && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cache=$($GO env GOCACHE)/fuzz
count=0

# fuzz DIRECTORY PACKAGE TARGET BOUND
fuzz() {
  (cd "$1" && "$tmp/fuzz.test" -test.run '^$' -test.fuzz "^$3\$" -test.fuzztime "$4" -test.fuzzminimizetime 10x -test.fuzzcachedir "$cache/$2") >"$tmp/log" 2>&1
}

fail() {
  cat "$tmp/log"
  exit 1
}

for module in "$@"; do
  cd "$top/$module"
  while read -r dir; do
    # Built once for all targets of the package, with the coverage that guides the fuzzer.
    $GO test -c -fuzz . -o "$tmp/fuzz.test" "$dir"
    pkg=$($GO list "$dir")
    targets=$(cd "$dir" && "$tmp/fuzz.test" -test.list '^Fuzz' | grep '^Fuzz' || true)
    for target in $targets; do
      echo "fuzz $dir $target"
      fuzz "$dir" "$pkg" "$target" "${FUZZTIME:-5s}" || {
        grep -q '^    context deadline exceeded$' "$tmp/log" && ! grep -q 'Failing input' "$tmp/log" || fail
        echo "fuzz $dir $target: the time ended within a call; again, by calls"
        fuzz "$dir" "$pkg" "$target" "${FUZZCALLS:-5000x}" || fail
      }
      count=$((count + 1))
    done
  done < <(grep -rl --include='*_test.go' '^func Fuzz' . | grep -v "^./test/" | xargs -rn1 dirname | sort -u)
done
echo "fuzz: $count targets, nothing found"
