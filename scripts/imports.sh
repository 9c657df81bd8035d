#!/usr/bin/env bash
# Checks which package imports which, so that whoever imports only elector
# builds elector, db, hooks and the standard library, and nothing else.
set -euo pipefail
cd "$(dirname "$0")/.."

# Rooms that are built of the standard library and of each other.
pure=(elector hooks hooks/hookstest db roster)

# Rooms that stand above elector, and so may import it. A new one is added here.
above='\./(bench|cmd|e2e|electortest|examples|internal|roster|sqlmock_test)(/\S+)?'

broken=0

# rule TEXT: the lines of standard input, if there are any, break the rule.
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

# A line for each import: "./ours ./ours", or "./ours database/sql". An external
# test (package x_test) is a user like any other, and may import what it likes.
module=$(go list -m)
# shellcheck disable=SC2016 # the dollar is the template's
imports=$(go list -f '
  {{- $p := .ImportPath}}
  {{- range .Imports}}{{$p}} {{.}}{{"\n"}}{{end}}
  {{- range .TestImports}}{{$p}} {{.}} (in a test){{"\n"}}{{end}}' ./... | sed "s|$module|.|g")
code=$(not ' \(in a test\)$' <<<"$imports")

present=()
for room in "${pure[@]}"; do
  case $room in
    elector | hooks | db) present+=("./$room") ;;
    *) [ ! -d "$room" ] || present+=("./$room") ;;
  esac
done
go list -deps -f '{{if not .Standard}}{{.ImportPath}}{{end}}' "${present[@]}" | not "^$module(/|\$)" |
  rule "${pure[*]} import no third party and no driver" || broken=1

only '^\./hooks \./' <<<"$code" | rule "hooks imports nothing of ours" || broken=1
only '^\./hooks/\S+ \./' <<<"$code" | not ' \./hooks(/|$)' |
  rule "a package below hooks/ imports of ours only hooks" || broken=1
only '^\./db(/\S+)? (\./|database/sql/driver$)' <<<"$code" | not ' \./db/' |
  rule "db imports nothing of ours, and names no driver's type" || broken=1
only '^\./elector(/\S+)? \./' <<<"$code" | not ' \./(db|hooks|elector/\S+)$' |
  rule "elector imports of ours only db and hooks" || broken=1
{
  only ' \./elector( |$)' <<<"$imports" | not "^$above "
  only '^\./internal/pgcluster(/\S+)? \./elector( |$)' <<<"$imports"
} | rule "only the rooms above elector import it (the list of them is in scripts/imports.sh)" || broken=1

# Comments may speak of it.
sql_conn() {
  local file
  for file in $(go list -f '{{join .GoFiles " "}}' ./elector); do
    [ "$file" != session.go ] || continue
    sed 's|//.*||' "elector/$file" | grep -nE '\bsql\.Conn\b|\.Conn\(' | sed "s|^|elector/$file:|" || true
  done
}
sql_conn | rule "in elector only session.go touches a sql.Conn" || broken=1

exit $broken
