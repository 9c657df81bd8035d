# To be sourced by what runs the tests. Their clusters make and delete thousands of small files, at which disks are
# slow, and never sync them. They go to memory if there is plenty, and if programs may run there.
if [[ -z ${TMPDIR:-} && $(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print $4 }') -gt 4000000 &&
  $(awk '/^MemAvailable/ { print $2 }' /proc/meminfo) -gt 8000000 ]] && shm=$(mktemp -d /dev/shm/pgelector-tests.XXXXXX); then
  trap 'rm -rf "$shm" || :' EXIT
  chmod 1777 "$shm"
  if cp "$(type -P true)" "$shm" && "$shm/true"; then
    export TMPDIR=$shm
  fi
fi
