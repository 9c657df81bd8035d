#!/usr/bin/env bash
# Coverage of elector, and of the sessions below it, by its own
# tests, those on sqlmock, on the server in memory, and on real servers.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh postgresql pgbouncer
mkdir -p .cache
go test -count=1 -timeout 45m -coverpkg=./elector,./internal/session,./internal/pace,./internal/fault,./internal/vitals -coverprofile=.cache/cover.out \
  ./elector/... ./internal/session/... ./internal/pace/... ./internal/fault/... ./internal/vitals/... \
  ./sqlmock_test/... ./electortest/... ./e2e/...
go tool cover -html=.cache/cover.out -o .cache/cover.html
go tool cover -func=.cache/cover.out
echo "Line by line: .cache/cover.html"
