#!/usr/bin/env bash
# Makes the commit and the tags of a release: scripts/release.sh v0.1.0
#
# Each module of go.work gets a tag: v0.1.0 of the root, hooks/otel/v0.1.0 of hooks/otel, and so on.
# They require each other by that version, and their go.sum has the checksums of what the tags will
# hold. A module's checksum does not cover the modules below it, so one commit can have all the tags.
# The work is done in a clone: if it fails, nothing has changed here. Nothing is pushed.
set -euo pipefail
cd "$(dirname "$0")/.."

version=${1:?usage: scripts/release.sh vX.Y.Z}
[[ $version =~ ^v[01]\.[0-9]+\.[0-9]+$ ]] || { echo "release: $version is no version like v0.1.0" >&2; exit 2; }
[ -z "$(git status --porcelain)" ] || { echo "release: commit or remove what git status shows" >&2; exit 1; }

path=github.com/pgelector/pgelector
modules=(. hooks/otel hooks/prometheus migrations/golangmigrate migrations/goose cmd/pgelector) # each requires only those before it
[ "$(printf './%s\n' "${modules[@]}" | sed 's|^\./\.$|.|' | sort)" = "$(scripts/modules.sh released)" ] ||
  { echo "release: go.work uses other modules than ${modules[*]}" >&2; exit 1; }

tag_of() { # MODULE
  if [ "$1" = . ]; then echo "$version"; else echo "$1/$version"; fi
}

temp=$(mktemp -d)
trap 'chmod -R u+w "$temp"; rm -rf "$temp"' EXIT
git clone -q . "$temp/clone"
here=$PWD
cd "$temp/clone"
git config user.name "$(git -C "$here" config user.name || echo pgelector)"
git config user.email "$(git -C "$here" config user.email || echo pgelector@localhost)"

# What the clone has is fetched from it, by its tags; all else from the module cache, or by the proxy.
GOPROXY=file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)
export GOPROXY GOMODCACHE=$temp/modules GOWORK=off GOPRIVATE=$path GOFLAGS=-modcacherw
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=url.file://$PWD.insteadOf GIT_CONFIG_VALUE_0=https://$path

for module in "${modules[@]}"; do
  for required in "${modules[@]}"; do
    name=$path/$required
    if grep -q "^	${name%/.} v" "$module/go.mod"; then go -C "$module" mod edit -require "${name%/.}@$version"; fi
  done
  if [ -f "$module/go.sum" ]; then sed -i.before "\|^$path[ /]|d" "$module/go.sum" && rm "$module/go.sum.before"; fi
done
sed -i.before -E "s#^(	$path[^ ]*) v[^ ]+ =>#\1 $version =>#" go.work && rm go.work.before
git commit -q --allow-empty -a -m "Release $version"
for module in "${modules[@]}"; do
  go -C "$module" mod tidy
  git add "$module/go.mod" "$module/go.sum"
  git commit -q --allow-empty --amend --no-edit
  git tag -f "$(tag_of "$module")" >/dev/null
done
for module in "${modules[@]}"; do # all on the last commit
  git tag -f -a "$(tag_of "$module")" -m "$(tag_of "$module")" >/dev/null
done

unset GIT_CONFIG_COUNT
branch=$(git -C "$here" symbolic-ref --short HEAD)
for module in "${modules[@]}"; do
  if git -C "$here" rev-parse -q --verify "refs/tags/$(tag_of "$module")" >/dev/null; then
    echo "release: there is a tag $(tag_of "$module"); a tag never moves" >&2
    exit 1
  fi
done
git -C "$here" pull -q --ff-only "$PWD" "$branch"
for module in "${modules[@]}"; do
  git -C "$here" fetch -q --no-tags "$PWD" "refs/tags/$(tag_of "$module"):refs/tags/$(tag_of "$module")"
  echo "$(tag_of "$module")"
done
