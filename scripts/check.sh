#!/usr/bin/env bash
# What to run before a commit, in less than two minutes and with no server: build, vet, the rules of imports, the bounds of
# the core, and the tests of the root module, on sqlmock and on a server in memory. Everything runs, whatever failed before it.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

failed=()

step() { # step NAME COMMAND...: one line, and what a failed one says
  local name=$1 began=$SECONDS out
  shift
  if out=$("$@" 2>&1); then
    printf 'ok    %3d s  %s\n' $((SECONDS - began)) "$name"
  else
    printf 'FAIL  %3d s  %s\n%s\n' $((SECONDS - began)) "$name" "$(grep -vE '^(ok|\?) ' <<<"$out")"
    failed+=("$name")
  fi
}

formatted() {
  local unformatted
  unformatted=$(git ls-files -z --cached --others --exclude-standard -- '*.go' | xargs -0 ls -d 2>/dev/null | xargs gofmt -l) || return 1
  [ -z "$unformatted" ] || { echo "$unformatted"; return 1; }
}

step "go code is formatted" formatted
step "everything compiles" go build ./...
step "go vet" go vet ./...
step "import rules hold" scripts/imports.sh
step "the core is within its bounds" go -C tools run ./core
step "the elector and what is below it" go test ./elector ./internal/... ./hooks/... ./db/...
step "elections with faults, by sqlmock" go test ./sqlmock_test
step "elections on a server in memory" go test ./elector/memory_test ./electortest
step "shards on a server in memory" go test ./shard
step "the rest of the module" go test ./...
step "the tests on real servers compile" go -C e2e vet ./...
step "the documents and the list of mutations fit the code" go -C e2e test -count=1 ./docs ./docscheck ./mutation

if [ ${#failed[@]} -gt 0 ]; then
  echo "check: failed: ${failed[*]/%/;} in $SECONDS s" >&2
  exit 1
fi
echo "check: all passed in $SECONDS s"
