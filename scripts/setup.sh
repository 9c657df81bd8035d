#!/usr/bin/env bash
# Prepares a machine for the tests:
#   scripts/setup.sh [postgresql] [pgbouncer] [compiler] [promtool] [browser] [iproute2] [patroni] [etcd] [haproxy] [z3]
#
# On Debian and its derivatives, as root, it installs missing packages from the distribution,
# and starts no cluster or service. Otherwise it only prints what is missing. The tests
# download a PostgreSQL if there is none.
set -euo pipefail

[ $# -gt 0 ] || set -- postgresql pgbouncer compiler promtool browser patroni etcd haproxy z3

note() { printf 'setup: %s\n' "$*" >&2; }

have() {
  case $1 in
    # Debian keeps these programs out of PATH.
    postgresql)
      [ -n "${PGELECTOR_PG_BIN:-}" ] || command -v initdb >/dev/null ||
        compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null ;;
    iproute2) command -v ip >/dev/null ;;
    pgbouncer) command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ] ;;
    # The race detector needs a C compiler and the C library's headers.
    compiler) CGO_ENABLED=1 go build -race runtime/cgo 2>/dev/null ;;
    promtool | patroni | etcd | z3) command -v "$1" >/dev/null ;;
    haproxy) command -v haproxy >/dev/null || [ -x /usr/sbin/haproxy ] ;;
    # Keep in step with e2e/browser.
    browser)
      [ -n "${PGELECTOR_BROWSER:-}" ] || command -v chromium >/dev/null || command -v chromium-browser >/dev/null ||
        command -v google-chrome >/dev/null || command -v google-chrome-stable >/dev/null ;;
    *) note "unknown program '$1'"; exit 2 ;;
  esac
}

packages_of() {
  case $1 in
    compiler) echo gcc libc6-dev ;;
    etcd) echo etcd-server ;;
    *) echo "$1" ;;
  esac
}

without() { # prints the consequence of a missing program
  case $1 in
    postgresql)
      if [ "$(id -u)" -eq 0 ]; then
        note "PostgreSQL's server is not installed; root must install it (the tests of another user would download one)"
      else
        note "PostgreSQL's server is not installed; the tests download one, once"
      fi ;;
    iproute2) note "iproute2 is not installed: links between hosts are not cut" ;;
    pgbouncer) note "pgbouncer is not installed: the tests that need a pooler will be SKIPPED" ;;
    promtool) note "promtool, of Prometheus, is not installed: the tests that evaluate the alerts will be SKIPPED" ;;
    patroni | etcd | haproxy) note "$1 is not installed: the tests on a high-availability cluster will be SKIPPED" ;;
    z3) note "z3 is not installed: the proofs of the model will be SKIPPED" ;;
    compiler) note "no working C compiler (or no race detector for this machine): the tests run WITHOUT -race" ;;
    browser) note "Chromium is not installed: the tests that need a browser will be SKIPPED" ;;
  esac
}

missing=()
for thing in "$@"; do
  have "$thing" || missing+=("$thing")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  for thing in "${missing[@]}"; do without "$thing"; done
  exit 0
fi

# From here on: root on Debian or a derivative.

apt() { DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dpkg::Use-Pty=0 "$@" </dev/null; }

# Fetch the package lists only if an installation fails without.
install() {
  apt install --no-install-recommends "$@" || { apt update && apt install --no-install-recommends "$@"; }
}

# During the installation two files prevent services from starting and the "main" cluster
# from being created. Both are restored afterwards.
policy=/usr/sbin/policy-rc.d
cluster=/etc/postgresql-common/createcluster.conf
our_line='create_main_cluster = false # for one installation, by pgelector'
wrote_policy=

restore() {
  if [ -n "$wrote_policy" ]; then rm -f "$policy"; fi
  if [ -f "$cluster" ]; then sed -i "/^$our_line\$/d" "$cluster"; fi
}
trap restore EXIT

if [ ! -e "$policy" ]; then
  wrote_policy=yes
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod +x "$policy"
fi

wanted=()
for thing in "${missing[@]}"; do
  case $thing in promtool | browser | patroni | etcd | haproxy | z3) continue ;; esac # optional: tests that need it are skipped
  read -ra packages <<<"$(packages_of "$thing")"
  wanted+=("${packages[@]}")
done
note "installing ${missing[*]}"
{
  case " ${missing[*]} " in
    *' postgresql '*)
      install postgresql-common
      echo "$our_line" >>"$cluster" ;;
  esac
  [ ${#wanted[@]} -eq 0 ] || install "${wanted[@]}"
  case " ${missing[*]} " in
    *' promtool '*) install prometheus || true ;;
  esac
  case " ${missing[*]} " in
    *' browser '*) install chromium fonts-dejavu-core || true ;;
  esac
  for thing in patroni etcd haproxy z3; do
    case " ${missing[*]} " in
      *" $thing "*) install "$(packages_of "$thing")" || true ;;
    esac
  done
} >&2

for thing in "${missing[@]}"; do
  have "$thing" || without "$thing"
done
