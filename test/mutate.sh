#!/usr/bin/env bash
# Checks that tests cover the defences: removes each defence from a copy of the tree, and runs the
# test that must then fail. Not part of `make test`; it takes minutes.
#
#   test/mutate.sh                     every mutation
#   test/mutate.sh staging- hostfs-    those whose names begin so
#   test/mutate.sh -l                  list them with their tests
#
# A mutation is test/mutations/NAME.patch: its first line is "# COMMAND", the test, run from
# the top of the tree; the rest is a patch for `git apply`.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
list=
if [ "${1:-}" = -l ]; then
  list=1
  shift
fi
mutations=()
for patch in "$top"/test/mutations/*.patch; do
  name=$(basename "$patch" .patch)
  [ $# -gt 0 ] || mutations+=("$name")
  for prefix in "$@"; do
    [[ $name != "$prefix"* ]] || mutations+=("$name")
  done
done
[ ${#mutations[@]} -gt 0 ] || { echo "mutate: no mutation begins with: $*" >&2; exit 2; }

command_of() { sed -n '1s/^# //p' "$top/test/mutations/$1.patch"; }

if [ -n "$list" ]; then
  for name in "${mutations[@]}"; do printf '%-36s %s\n' "$name" "$(command_of "$name")"; done
  exit 0
fi

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/tree"
(cd "$top" && git ls-files -z --cached --others --exclude-standard | tar --null --ignore-failed-read -cf - -T -) | tar -xf - -C "$tmp/tree"
[ ! -d "$top/.cache" ] || ln -s "$top/.cache" "$tmp/tree/.cache"
cd "$tmp/tree"
# Otherwise git apply treats the copy as part of another checkout, and skips its files.
export GIT_CEILING_DIRECTORIES=$tmp

killed=0
survived=0
for name in "${mutations[@]}"; do
  command=$(command_of "$name")
  patch=$top/test/mutations/$name.patch
  result=
  if [ -z "$command" ]; then
    result="the first line names no command"
  elif ! git apply --check "$patch" 2>"$tmp/log"; then
    result="the patch does not apply"
  elif ! bash -c "$command" >"$tmp/log" 2>&1; then
    result="the test fails without the mutation"
  elif grep -q 'no tests to run' "$tmp/log"; then
    result="the command runs no test"
  else
    git apply "$patch"
    if bash -c "$command" >"$tmp/log" 2>&1; then
      result="survived: the test passes without the defence"
    elif grep -qE '\[(build|setup) failed\]' "$tmp/log"; then
      result="does not build"
    fi
    git apply -R "$patch"
  fi
  if [ -z "$result" ]; then
    killed=$((killed + 1))
    printf 'killed    %-36s %s\n' "$name" "$command"
  else
    survived=$((survived + 1))
    printf 'ERROR     %-36s %s (%s)\n' "$name" "$result" "$command"
    sed 's/^/          | /' "$tmp/log" | tail -n 20
  fi
done
echo "mutate: $killed killed, $survived not"
[ "$survived" -eq 0 ]
