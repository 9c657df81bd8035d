#!/usr/bin/env bash
# Prints the directory of each Go module, the root's first.
set -euo pipefail
cd "$(dirname "$0")/.."

find . -name '.?*' -prune -o -name go.mod -exec dirname {} \; | sort
