#!/usr/bin/env bash
# Prints the folder of each Go module of this repository, the root's first.
set -euo pipefail
cd "$(dirname "$0")/.."

find . -name '.?*' -prune -o -name go.mod -exec dirname {} \; | sort
