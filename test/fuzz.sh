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
log=$(mktemp)
trap 'rm -f "$log"' EXIT
count=0

# fuzz PACKAGE TARGET BOUND
fuzz() {
  $GO test -run '^$' -fuzz "^$2\$" -fuzztime "$3" -fuzzminimizetime 10x "$1" >"$log" 2>&1
}

fail() {
  cat "$log"
  exit 1
}

for module in "$@"; do
  cd "$top/$module"
  while read -r pkg; do
    targets=$($GO test -list '^Fuzz' "$pkg" | grep '^Fuzz' || true)
    for target in $targets; do
      echo "fuzz $pkg $target"
      fuzz "$pkg" "$target" "${FUZZTIME:-5s}" || {
        grep -q '^    context deadline exceeded$' "$log" && ! grep -q 'Failing input' "$log" || fail
        echo "fuzz $pkg $target: the time ended within a call; again, by calls"
        fuzz "$pkg" "$target" "${FUZZCALLS:-5000x}" || fail
      }
      count=$((count + 1))
    done
  done < <(grep -rl --include='*_test.go' '^func Fuzz' . | grep -v "^./test/" | xargs -rn1 dirname | sort -u)
done
echo "fuzz: $count targets, nothing found"
