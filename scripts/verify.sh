#!/usr/bin/env bash
# Checks that generated code, imports, docs and go.mod are up to date. All checks run, the
# fast ones first. Each failure says what to do.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

failed=()

check() { # check NAME "what to do" COMMAND...
  local name=$1 remedy=$2
  shift 2
  if "$@"; then
    echo "ok    $name"
  else
    echo "FAIL  $name: $remedy" >&2
    failed+=("$name")
  fi
}

formatted() {
  local unformatted
  unformatted=$(find . -name '.?*' -prune -o -name '*.go' -exec gofmt -l {} +) || return 1
  [ -z "$unformatted" ] || { echo "$unformatted" >&2; return 1; }
}

generated() {
  local made from file sqlc
  while read -r made from; do
    for file in "$made"/*.sql.go; do # sqlc does not remove stale files
      [ -e "$from/$(basename "$file" .go)" ] || { echo "$file: its queries no longer exist: remove it" >&2; return 1; }
    done
  done <<<$'db queries\nroster/internal/db queries/roster\nticks/internal/db queries/ticks'
  sqlc=$(scripts/tool.sh sqlc) && "$sqlc" diff
}

names() { go -C tools test ./... && go -C tools run ./sqlnames; }
small() { # the command, as it is released
  local program size
  program=$(mktemp) && CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o "$program" ./cmd/pgelector && size=$(wc -c <"$program")
  rm -f "$program"
  [ "${size:-0}" -gt 0 ] && [ "$size" -le 20100000 ] || { echo "the command has ${size:-no} bytes" >&2; return 1; }
}
growth() { # growth DRIVER PACKAGE BYTES: what an election may add to a program that has the driver alone, symbols included
  local dir before after elects='e, err := elector.New(pool, "orders")
	if err != nil { log.Fatal(err) }
	log.Fatal(e.Run(context.Background(), func(ctx context.Context, _ *elector.Term) error { <-ctx.Done(); return nil }))'
  dir=$(mktemp -d)
  before=$(program "$1" "$2" <<<'log.Fatal(pool.PingContext(context.Background()))')
  after=$(program "$1" "$2" '"github.com/pgelector/pgelector/elector"' <<<"$elects")
  rm -r "$dir"
  [ "${before:-0}" -gt 0 ] && [ "${after:-0}" -gt 0 ] || return 1
  echo "      over $1 an election adds $((after - before)) bytes to $before"
  [ $((after - before)) -le "$3" ]
}
program() { # program DRIVER PACKAGE [IMPORT]: the size of a program that opens a pool and goes on as standard input says
  { cat <<GO; cat; echo '}'; } >"$dir/main.go"
package main

import (
	"context"
	"database/sql"
	"log"

	_ "$2"
	${3:-}
)

func main() {
	pool, err := sql.Open("$1", "")
	if err != nil { log.Fatal(err) }
GO
  echo "{\"Replace\": {\"$PWD/cmd/minimal/main.go\": \"$dir/main.go\"}}" >"$dir/overlay.json"
  CGO_ENABLED=0 go build -trimpath -overlay "$dir/overlay.json" -o "$dir/program" ./cmd/minimal && wc -c <"$dir/program"
}
growths() { growth pgx github.com/jackc/pgx/v5/stdlib 2100000 && growth postgres github.com/lib/pq 2600000; }
# The kernel is read as a whole: the files of internal/election are one machine, whose wall is the package.
arrows() { (cd tools && go run ./filearrows ../elector $(ls -d ../internal/*/ | grep -v /election/)); }

check "go code is formatted" "run 'gofmt -w .'" formatted
check "import rules hold" "see the lines above, and the layout in CONTRIBUTING.md" scripts/imports.sh
check "the docs' code and make targets are correct" "change the document or the code that it shows" \
  go -C e2e test -count=1 ./docscheck ./docs ./proof
check "the docs' code and the examples compile in a new module" "change the document or the example" \
  go -C e2e test -count=1 -run Compiles ./firsthour
check "all names in the SQL are qualified" "qualify it with pg_catalog; tools/sqlnames explains why" names
check "no two files of the core use each other" "move what both use to a third file; tools/filearrows explains what counts" arrows
check "the core is within its bounds, and the table of parts says what a default election runs" "see tools/core/bounds.go, and the table in CONTRIBUTING.md" go -C tools run ./core -run
check "the command has at most 20.1 MB" "see what it links: go list -deps ./cmd/pgelector" small
check "an election adds at most 2.1 MB over pgx, and 2.6 MB over lib/pq" \
  "name methods of reflection by constants, or the linker keeps all methods: go build -ldflags=-dumpdep, and look for <ReflectMethod>" growths
for module in . e2e examples bench tools; do
  check "$module/go.mod is tidy" "run 'go mod tidy' in $module" go -C "$module" mod tidy -diff
done
check "the generated code matches queries/" "run 'make generate' and commit db/, roster/internal/db/ and ticks/internal/db/" generated

if [ ${#failed[@]} -gt 0 ]; then
  echo "verify: ${#failed[@]} of the checks failed" >&2
  exit 1
fi
