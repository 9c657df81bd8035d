#!/usr/bin/env bash
# Builds a tool that the tools module pins, and prints its path: scripts/tool.sh sqlc
#
# It keeps the tool in .cache/bin, under a hash of the pins and the Go release: staticcheck
# supports only the release that built it.
set -euo pipefail
cd "$(dirname "$0")/.."

name=${1:?usage: scripts/tool.sh NAME}
pins=$(cd tools && { cat go.mod go.sum && go env GOVERSION GOOS GOARCH; } | git hash-object --stdin)
dir=$PWD/.cache/bin/${pins:0:16}

if [ ! -x "$dir/$name" ]; then
  package=$(cd tools && go list -f '{{.ImportPath}}' tool | grep "/$name\$") || {
    echo "tool.sh: tools/go.mod has no tool '$name'" >&2
    exit 2
  }
  echo "Building $name once, as tools/go.mod pins it; the first build takes some minutes ..." >&2
  mkdir -p "$dir"
  (cd tools && CGO_ENABLED=0 go build -trimpath -o "$dir/$name.new" "$package") >&2
  mv "$dir/$name.new" "$dir/$name"
fi
echo "$dir/$name"
