#!/usr/bin/env bash
# Prints the directory of each Go module, the root's first; with "released", of those that go.work
# joins: they get tags, and a program can require them.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "${1:-}" = released ]; then
  sed -n '/^use (/,/^)/s|^\t||p' go.work | sort
else
  find . -name '.?*' -prune -o -name go.mod -exec dirname {} \; | sort
fi
