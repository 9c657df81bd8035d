#!/usr/bin/env bash
# Coverage of package elector by its own, the sqlmock and the e2e tests.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh postgresql pgbouncer
mkdir -p .cache
go test -count=1 -timeout 45m -coverpkg=./elector -coverprofile=.cache/cover.out \
  ./elector/... ./sqlmock_test/... ./e2e/...
go tool cover -html=.cache/cover.out -o .cache/cover.html
go tool cover -func=.cache/cover.out
echo "Line by line: .cache/cover.html"
