#!/usr/bin/env bash
# Runs each fuzz target: scripts/fuzz.sh TIME [pattern of targets]. Go writes a failing input
# to the package's testdata/fuzz: add it as a seed (f.Add) in the commit with the fix.
set -euo pipefail
cd "$(dirname "$0")/.."

time=${1:-30s} only=${2:-.}
targets=$(grep -rhoE --include='*_test.go' '^func Fuzz\w+' . | sed 's/func //' | grep -E "$only" | sort)
total=$(wc -w <<<"$targets") n=0
for target in $targets; do
  n=$((n + 1))
  file=$(grep -rlE --include='*_test.go' "^func $target\(" .)
  echo "== $n/$total $target, $time"
  (cd "$(dirname "$file")" && go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" .) | grep -vE '^(PASS|ok)'
done
