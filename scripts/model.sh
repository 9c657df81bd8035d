#!/usr/bin/env bash
# Checks the model in docs/model. The protocol must pass. For each variant without one of its
# rules, spin must find a trace with two writers. TERMS is the number of elections, 3 by default.
set -euo pipefail
cd "$(dirname "$0")/.."

note() { printf 'model: %s\n' "$*" >&2; }

if ! command -v spin >/dev/null; then
  if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    apt() { DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dpkg::Use-Pty=0 "$@" </dev/null >&2; }
    apt install --no-install-recommends spin || { apt update && apt install --no-install-recommends spin; }
  else
    note "spin is not installed: install it (Debian and Ubuntu: apt-get install spin; macOS: brew install spin)"
    exit 1
  fi
fi
command -v cc >/dev/null || { note "a C compiler is needed: spin generates C"; exit 1; }

model=$PWD/docs/model/fence.pml
terms=("-DTERMS=${TERMS:-3}")
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
cd "$temp"

# check [-DVARIANT]: runs the checker and prints its output. Its hash table has 2^27 slots, more than
# there are states, so that few share one.
check() {
  rm -f ./*.trail
  spin "${terms[@]}" "$@" -a "$model" >spin.log || { cat spin.log >&2; exit 1; }
  cc -w -O2 -DSAFETY -DNOREDUCE -o pan pan.c
  ./pan -m100000 -w27 >pan.log 2>&1 || true
  grep -q 'max search depth too small\|out of memory' pan.log && { cat pan.log >&2; exit 1; }
  grep -q 'errors: [0-9]' pan.log || { cat pan.log >&2; exit 1; }
}

failed=0

check
states=$(awk '/states, stored/ { print $1; exit }' pan.log)
if grep -q 'errors: 0' pan.log; then
  echo "ok    the protocol: no two writers in $states states"
else
  failed=1
  echo "FAIL  the protocol allows two writers:"
  spin "${terms[@]}" -t -p -g "$model" | tail -60
fi

while read -r variant what; do
  check "-D$variant"
  if grep -q 'assertion violated' pan.log; then
    echo "ok    without $what, spin finds two writers"
    [ -z "${TRACE:-}" ] || spin "${terms[@]}" "-D$variant" -k fence.pml.trail -p -g "$model" | sed 's/^/        /'
  else
    failed=1
    echo "FAIL  without $what (-D$variant), spin finds nothing"
  fi
done <<'VARIANTS'
NO_BARRIER the barrier
NO_CHECK the check of pid and start
NO_START the start in that check
NO_MARGIN the margin
NO_TOKEN the token
CHECK_FIRST the token's check in the same step as the write
SEAT_LEADS the lock, by the seat alone
FREED_FIRST the order: told, then freed
VARIANTS

exit "$failed"
