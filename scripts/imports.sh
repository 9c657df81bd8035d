#!/usr/bin/env bash
# Checks the import rules: elector depends only on the packages below it and the standard
# library.
set -euo pipefail
cd "$(dirname "$0")/.."

# Packages that import only each other and the standard library.
below=(internal/lock internal/session internal/pgerr internal/backoff)
pure=(elector "${below[@]}" health hooks hooks/hookstest hooks/metrics db roster dashboard electortest)

# The packages that may import elector.
above='\./(cmd|dashboard|electortest|health|roster|sqlmock_test|notify)(/\S+)?'

broken=0

# rule TEXT: each line of standard input breaks the rule.
rule() {
  local line lines=()
  while read -r line; do lines+=("$line"); done < <(sort -u)
  [ ${#lines[@]} -gt 0 ] || return 0
  {
    echo "imports: $1, but:"
    printf '    %s\n' "${lines[@]}"
  } >&2
  return 1
}

only() { grep -E "$1" || true; }
not() { grep -vE "$1" || true; }

# A line for each import: "./ours ./ours", or "./ours database/sql". External tests (package
# x_test) may import anything.
module=$(go list -m)
# shellcheck disable=SC2016 # the dollar is the template's
imports=$(go list -f '
  {{- $p := .ImportPath}}
  {{- range .Imports}}{{$p}} {{.}}{{"\n"}}{{end}}
  {{- range .TestImports}}{{$p}} {{.}} (in a test){{"\n"}}{{end}}' ./... | sed "s|$module|.|g")
code=$(not ' \(in a test\)$' <<<"$imports")

go list -deps -f '{{if not .Standard}}{{.ImportPath}}{{end}}' "${pure[@]/#/./}" | not "^$module(/|\$)" |
  rule "${pure[*]} import no third party and no driver" || broken=1

only '^\./hooks \./' <<<"$code" | rule "hooks imports nothing of ours" || broken=1
only '^\./hooks/\S+ \./' <<<"$code" | not ' \./hooks(/|$)' |
  rule "a package below hooks/ imports of ours only hooks" || broken=1
only '^\./db(/\S+)? (\./|database/sql/driver$)' <<<"$code" | not ' \./db/' |
  rule "db imports nothing of ours, and names no driver's type" || broken=1
only '^\./elector(/\S+)? \./' <<<"$code" | not ' \./(hooks|internal/(lock|session|pgerr|backoff)|elector/\S+)$' |
  rule "elector imports of ours only hooks, and ${below[*]}: it speaks no SQL" || broken=1
only '^\./internal/session \./' <<<"$code" | not ' \./(db|internal/(pgerr|backoff))$' |
  rule "internal/session imports of ours only db, internal/pgerr and internal/backoff" || broken=1
only '^\./internal/(pgerr|backoff) \./' <<<"$code" | rule "internal/pgerr and internal/backoff import nothing of ours" || broken=1
only '^\./internal/lock \./' <<<"$code" | not ' \./(db|internal/(session|pgerr|backoff))$' |
  rule "internal/lock imports of ours only db, internal/session, internal/pgerr and internal/backoff" || broken=1
only ' \./internal/(lock|session)$' <<<"$code" | not '^\./(elector|internal/lock) ' |
  rule "only elector and internal/lock import internal/session" || broken=1
only ' \./elector( |$)' <<<"$imports" | not "^$above " |
  rule "only the packages above elector import it (the list of them is in scripts/imports.sh)" || broken=1

# Ignores comments.
sql_conn() {
  local file
  for file in $(go list -f '{{$p := .ImportPath}}{{range .GoFiles}}{{$p}}/{{.}} {{end}}' ./elector ./internal/lock ./internal/session); do
    file=${file#"$module/"}
    [[ $file != internal/session/session.go && $file != internal/session/tx.go ]] || continue
    sed 's|//.*||' "$file" | grep -nE '\bsql\.Conn\b|\.Conn\(' | sed "s|^|$file:|" || true
  done
}
sql_conn | rule "only internal/session's session.go, and for the user's transactions tx.go, touch a sql.Conn" || broken=1

exit $broken
