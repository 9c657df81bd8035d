#!/usr/bin/env bash
# Makes the files of a release of the command: scripts/dist.sh v0.1.0 [OS/ARCH ...]
#
# dist/ gets, for each platform, an archive and an SBOM (CycloneDX, of the modules that the binary
# has linked), and SHA256SUMS of all of them. Whoever builds the same commit with the same Go gets
# the same archives.
set -euo pipefail
cd "$(dirname "$0")/.."

version=${1:?usage: scripts/dist.sh vX.Y.Z [OS/ARCH ...]}
platforms=("${@:2}")
[ ${#platforms[@]} -gt 0 ] || platforms=(linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64)

temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
GOBIN=$temp GOWORK=off GOFLAGS= go install github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0

rm -rf dist
mkdir dist
for platform in "${platforms[@]}"; do
  os=${platform%/*} arch=${platform#*/}
  name=pgelector_${version}_${os}_$arch
  binary=pgelector
  [ "$os" = windows ] && binary=pgelector.exe
  mkdir "$temp/$name"
  GOWORK=$PWD/go.work CGO_ENABLED=0 GOOS=$os GOARCH=$arch go build -trimpath -buildvcs=false -ldflags="-s -w -X main.release=$version" -o "$temp/$name/$binary" ./cmd/pgelector
  cp LICENSE README.md CHANGELOG.md "$temp/$name/"
  "$temp/cyclonedx-gomod" bin -json -noserial -licenses=false -version "$version" -output "dist/$name.sbom.json" "$temp/$name/$binary" 2>"$temp/said" ||
    { cat "$temp/said" >&2; exit 1; }
  sed -i.before -e "s/(devel)/$version/g" -e "s/%28devel%29/$version/g" "dist/$name.sbom.json" # the modules beside it, of the same commit
  rm "dist/$name.sbom.json.before"
  tar -C "$temp" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$(git log -1 --format=%ct)" -cf - "$name" | gzip -n9 >"dist/$name.tar.gz"
  echo "dist/$name.tar.gz"
done
(cd dist && sha256sum -- * >"$temp/sums" && mv "$temp/sums" SHA256SUMS)
echo dist/SHA256SUMS
