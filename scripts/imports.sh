#!/usr/bin/env bash
# Checks the import rules: elector depends only on the packages below it and the standard
# library.
set -euo pipefail
cd "$(dirname "$0")/.."

# The kernel, and what it stands on. It knows no part.
under='internal/backoff internal/gate internal/lockkey internal/pgerr internal/lease internal/pin internal/idle'
kernel="db internal/election internal/backoff internal/lockkey internal/pgerr internal/lease"

# The answerers tell the kernel what the server said. seat and transaction know no part but pooled; shared has the parts that
# it uses on its one connection.
answerers='internal/seat internal/transaction'

# What several parts use.
asks='internal/live internal/pooled internal/holder internal/queue internal/tenure'
parts="$asks internal/deputy internal/fenced internal/handover internal/inbox internal/listen internal/lockdelay internal/preference internal/preflight internal/promotion internal/shared internal/syncrep internal/validate internal/wakeup"

# What each package of the core may import from this module.
declare -A may=(
  [internal/backoff]='' [internal/gate]='' [internal/lockkey]='' [internal/pgerr]='' [internal/lease]='internal/pgerr'
  [internal/pin]='db internal/pgerr internal/backoff' [internal/idle]='db internal/pin internal/pgerr'
  [internal/election]="db $under" [internal/tables]='db internal/pooled'
  [internal/seat]="$kernel internal/pin" [internal/transaction]="$kernel internal/pin internal/pooled internal/seat"
  [internal/shared]="$kernel internal/pin $answerers internal/handover internal/fenced"
  [internal/live]="$kernel" [internal/tenure]='internal/lease internal/pgerr' [internal/pooled]="$kernel internal/pin internal/live"
  [internal/holder]="$kernel internal/transaction internal/pooled" [internal/queue]="$kernel $answerers"
)
for part in deputy fenced handover inbox lockdelay preference preflight promotion syncrep validate wakeup listen; do
  may[internal/$part]="$kernel $answerers $asks"
done
may[internal/deputy]+=' internal/handover internal/fenced' # a successor takes over, and an old leader is terminated
may[internal/preflight]+=' internal/listen internal/idle'  # whether a connection can be listened on, or is silent
may[elector]="hooks internal/gate $kernel $answerers $parts"
takes_conns='election|idle|seat|transaction|shared|pooled|fenced|listen|preflight|syncrep|inbox' # and use internal/pin
for package in fenced inbox listen preflight syncrep; do may[internal/$package]+=' internal/pin'; done
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
only ' \./internal/election$' <<<"$code" | not '^\./(elector|internal/\S+) ' |
  rule "only elector and internal/ import internal/election" || broken=1
only ' \./internal/pin$' <<<"$code" | not "^\./internal/($takes_conns) " |
  rule "only these packages of internal/ import internal/pin: ${takes_conns//|/, }" || broken=1
for package in internal/*/; do
  package=${package%/}
  [[ -v may[$package] || $package == internal/drivertest ]] || echo "$package"
done | rule "each package of internal/ has its rule in scripts/imports.sh" || broken=1
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
