#!/usr/bin/env bash
# Measures the coverage of elector and the packages below it by their unit tests, and by
# the tests on sqlmock, on a server in memory and on real servers.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/tmpdir.sh
source scripts/tmpdir.sh

scripts/setup.sh postgresql pgbouncer
mkdir -p .cache
packages=github.com/pgelector/pgelector/elector,github.com/pgelector/pgelector/internal/...
go test -count=1 -coverpkg=$packages -coverprofile=.cache/cover.out "$@" ./elector/... ./internal/... ./sqlmock_test/... ./electortest/...
go -C e2e test -count=1 -timeout 45m -coverpkg=$packages -coverprofile=../.cache/cover-e2e.out "$@" .
tail -n +2 .cache/cover-e2e.out >>.cache/cover.out
go tool cover -html=.cache/cover.out -o .cache/cover.html
go tool cover -func=.cache/cover.out
echo "Line by line: .cache/cover.html"
