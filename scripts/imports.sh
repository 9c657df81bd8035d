#!/usr/bin/env bash
# Checks the import rules: elector depends only on the packages below it and the standard
# library.
set -euo pipefail
cd "$(dirname "$0")/.."

# What each package of the core may import from this module.
spine='internal/lock internal/session internal/lease internal/lockkey internal/pgerr internal/backoff'
asks='internal/pooled internal/pair internal/queue internal/holder internal/tenure' # what the parts share
parts="$asks internal/transaction internal/preflight internal/promotion internal/syncrep internal/inbox internal/deputy internal/handover internal/shared internal/fenced internal/wakeup internal/validate internal/listen internal/lockdelay"
declare -A may=(
  [internal/pgerr]='' [internal/backoff]='' [internal/lockkey]='' [internal/gate]='' [internal/turn]=''
  [internal/lease]='internal/pgerr' [internal/tenure]='internal/lease internal/pgerr'
  [internal/idle]='db internal/pin internal/pgerr' [internal/election]='db internal/pin internal/idle internal/lease internal/gate internal/lockkey internal/pgerr internal/backoff'
  [internal/pooled]="db internal/pin $spine" [internal/pair]="db $spine" [internal/holder]="db internal/pooled $spine"
  [internal/queue]="db internal/pooled $spine"
  [internal/tables]='db internal/pooled'
  [internal/pin]='db internal/pgerr internal/backoff'
  [internal/session]='db internal/gate internal/pin internal/lease internal/pgerr internal/backoff'
  [internal/lock]='db internal/session internal/lease internal/lockkey internal/pgerr internal/backoff'
  [internal/transaction]="db internal/turn internal/pooled internal/pin $spine"
  [internal/preflight]="db internal/listen internal/turn internal/pooled internal/pair internal/transaction $spine"
  [internal/promotion]="db internal/pooled $spine" [internal/syncrep]="db internal/pair internal/tenure $spine" [internal/lockdelay]="db internal/tenure $spine" [internal/inbox]="db internal/pooled $spine"
  [internal/deputy]="db $asks $spine" [internal/handover]="db $asks $spine" [internal/shared]="db $asks internal/gate internal/fenced $spine"
  [internal/fenced]="db internal/pin internal/pooled internal/pair $spine"
  [internal/wakeup]="db internal/pooled $spine" [internal/validate]="db $spine" [internal/listen]="internal/pin $spine"
  [elector]="hooks internal/gate $spine $parts"
)
pure=("${!may[@]}" health hooks hooks/hookstest hooks/metrics db roster dashboard electortest shard ticks migrations)

# The packages that may import elector.
above='\./(cmd|dashboard|electortest|health|roster|shard|sqlmock_test|notify|ticks|migrations)(/\S+)?'

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

# One line per import: "./elector ./hooks", or "./elector database/sql". External tests (package
# x_test) may import anything.
module=$(GOWORK=off go list -m)
mapfile -t modules < <(scripts/modules.sh released | tail -n +2) # below the root's
# shellcheck disable=SC2016 # the template uses the dollar
imports=$(go list -f '
  {{- $p := .ImportPath}}
  {{- range .Imports}}{{$p}} {{.}}{{"\n"}}{{end}}
  {{- range .TestImports}}{{$p}} {{.}} (in a test){{"\n"}}{{end}}' ./... "${modules[@]/%//...}" | sed "s|$module|.|g")
code=$(not ' \(in a test\)$' <<<"$imports")

go list -deps -f '{{if not .Standard}}{{.ImportPath}}{{end}}' "${pure[@]/#/./}" | not "^$module(/|\$)" |
  rule "${pure[*]} import only the standard library and this module" || broken=1

only '^\./hooks \./' <<<"$code" | rule "hooks imports no other package of this module" || broken=1
only '^\./hooks/\S+ \./' <<<"$code" | not ' \./hooks(/|$)' |
  rule "a package below hooks/ imports only hooks from this module" || broken=1
only '^\./db(/\S+)? (\./|database/sql/driver$)' <<<"$code" | not ' \./db/' |
  rule "db imports no other package of this module and no driver" || broken=1
for package in "${!may[@]}"; do
  only "^\./$package \./" <<<"$code" | not " \./(${may[$package]// /|})\$" |
    rule "$package imports only ${may[$package]:-nothing} from this module" || broken=1
done
for below in "${modules[@]}"; do
  only "^\\$below(/\\S+)? \\./internal/" <<<"$imports" | rule "$below is a module, and imports nothing of the root's internal/" || broken=1
done
only ' \./internal/(pin|lock|session)$' <<<"$code" | not '^\./(elector|internal/\S+) ' |
  rule "only elector and internal/ import internal/lock and internal/session" || broken=1
only ' \./internal/pin$' <<<"$code" | not '^\./internal/(election|idle|session|transaction|pooled|fenced|listen) ' |
  rule "only internal/election, idle, session, transaction, pooled, fenced and listen import internal/pin" || broken=1
only ' \./elector( |$)' <<<"$imports" | not "^$above " |
  rule "only the packages above elector import it (the list of them is in scripts/imports.sh)" || broken=1

# A package that finds methods by variable names or by number has the linker keep every method of every program that imports
# it. The templates of the standard library do so, and the dashboard pays for them.
only ' (text|html)/template$' <<<"$code" | not '^\./dashboard ' | rule "only the dashboard imports templates, with which a program grows by some megabytes" || broken=1
mapfile -t linked < <(go list -f '{{$p := .Dir}}{{range .GoFiles}}{{$p}}/{{.}}{{"\n"}}{{end}}' ./... "${modules[@]/%//...}")
{ grep -nE '\breflect\..*\)\.Method\(|\.(Method\([0-9a-z]|MethodByName\([^"])' "${linked[@]}" || true; } |
  sed "s|^$PWD/||" | rule "methods are named by constants" || broken=1

# Prints the lines that use a sql.Conn, without comments.
sql_conn() {
  local file
  for file in $(go list -f '{{$p := .ImportPath}}{{range .GoFiles}}{{$p}}/{{.}} {{end}}' ./elector ./internal/...); do
    file=${file#"$module/"}
    [[ $file != internal/pin/* && $file != internal/fenced/tx.go && $file != internal/drivertest/* ]] || continue
    sed 's|//.*||' "$file" | grep -nE '\bsql\.Conn\b|\.Conn\([^)]' | sed "s|^|$file:|" || true
  done
}
sql_conn | rule "only internal/pin, and tx.go of internal/fenced, use a sql.Conn" || broken=1

exit $broken
