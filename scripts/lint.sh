#!/usr/bin/env bash
# Runs go vet and staticcheck on each module.
set -euo pipefail
cd "$(dirname "$0")/.."

staticcheck=$(scripts/tool.sh staticcheck)
failed=0
for module in $(scripts/modules.sh); do
  (
    cd "$module"
    echo "lint: $module"
    status=0
    go vet ./... || status=1
    "$staticcheck" ./... || status=1
    exit $status
  ) || failed=1
done
exit $failed
