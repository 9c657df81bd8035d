#!/usr/bin/env bash
# Vets and tests, with the race detector if available: scripts/test.sh [go test flags]
# MODULES names the modules; default: all. PACKAGES names their packages; default: all.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh
# shellcheck source=scripts/tmpdir.sh
source scripts/tmpdir.sh

# Without a C compiler there is no race detector.
race=()
if CGO_ENABLED=1 go build -race runtime/cgo 2>/dev/null; then
  export CGO_ENABLED=1 GORACE="atexit_sleep_ms=100 ${GORACE:-}" # every process waits at its end, a second by default
  race=(-race)
fi

count=1
for arg in "$@"; do
  case $arg in -count=*) count=${arg#-count=} ;; esac
done

# Tests on real servers mostly wait, so run one package more than there are processors.
packages=$(($(getconf _NPROCESSORS_ONLN) + 1))

# What guards the promises, once more through PgBouncer in transaction mode; all of it: make e2e SCOPE=transaction
pooled='^(TestTwentyProcessesHaveOneLeaderAtATime|TestAFrozenLeaderIsReplacedAndKnowsItWhenThawed|TestInTxCommitsInsideTheTerm|TestInTxIsRefusedAfterTheTerm|TestTheWorkMayTransferItsTerm|TestTwoRequestsAtOnceEndOneTerm)$'

# tested vets and tests a module.
tested() {
  local failed=0
  go -C "$1" vet ./... || failed=1
  go -C "$1" test ${race[@]+"${race[@]}"} -shuffle=on -p "$packages" -timeout "$((90 * count))m" "${@:2}" ${PACKAGES:-./...} || failed=1
  return $failed
}

status=0
small=
if [[ -z ${MODULES:-} ]]; then # the examples wait, too: beside e2e, and told after it
  small=$(mktemp)
  for module in . hooks/otel hooks/prometheus migrations/golangmigrate migrations/goose cmd/pgelector; do
    tested "$module" "$@" || status=1
  done
  tested examples "$@" >"$small" 2>&1 &
fi
for module in ${MODULES:-e2e}; do
  tested "$module" "$@" || status=1
done
if [[ -n $small ]]; then
  wait $! || status=1
  cat "$small"
  rm -f "$small"
fi
# The others have few tests. Only their packages are built, and not the systems that bench compares with.
if [[ -z ${MODULES:-} ]]; then
  for module in bench tools; do
    # shellcheck disable=SC2046 # no name of a package has a space
    (cd "$module" && go test -shuffle=on "$@" $(find . -name '*_test.go' -exec dirname {} + | sort -u)) || status=1
  done
fi
if [[ -z ${MODULES:-} && " $* " == *" -run=. "* ]] && PATH=$PATH:/usr/sbin command -v pgbouncer >/dev/null; then
  PGELECTOR_SCOPE=transaction go -C e2e test ${race[@]+"${race[@]}"} -shuffle=on -timeout 30m "$@" -run="$pooled" . || status=1
fi
exit $status
