#!/usr/bin/env bash
# Runs every fuzz target of the given modules for FUZZTIME (5s). What a target
# finds is an error, and stays in its package's testdata/fuzz.
set -euo pipefail
GO=${GO:-go}
top=$(cd "$(dirname "$0")/.." && pwd)
count=0
for module in "$@"; do
  cd "$top/$module"
  while read -r pkg; do
    targets=$($GO test -list '^Fuzz' "$pkg" | grep '^Fuzz' || true)
    for target in $targets; do
      echo "fuzz $pkg $target"
      $GO test -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-5s}" -fuzzminimizetime 10x "$pkg" >"$top/.fuzz.log" 2>&1 || { cat "$top/.fuzz.log"; rm -f "$top/.fuzz.log"; exit 1; }
      count=$((count + 1))
    done
  done < <(grep -rl --include='*_test.go' '^func Fuzz' . | grep -v "^./test/" | xargs -rn1 dirname | sort -u)
done
rm -f "$top/.fuzz.log"
echo "fuzz: $count targets, nothing found"
