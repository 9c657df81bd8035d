# Usage: sh -c reaper.sh sh DIR, with a pipe as standard input.
#
# Waits until the other end of the pipe is closed. Then ends the processes listed in DIR/run and those that
# work below DIR, and removes DIR. Plain POSIX sh, for Debian's dash, macOS and busybox.

dir=$1
trap '' HUP INT TERM

while read -r _; do :; done

# A process creates its file in run/ before it starts to work (see sandbox.go). After this rename no process
# can, so the list in closed/ is complete.
mv "$dir/run" "$dir/closed" 2>/dev/null

# Each file is named after a process id, which is also the id of a process group.
processes=
for file in "$dir"/closed/*; do
	[ -e "$file" ] && processes="$processes ${file##*/}"
done

signal_all() {
	for pid in $processes; do kill "$1" "-$pid" 2>/dev/null || kill "$1" "$pid" 2>/dev/null; done
}

any_alive() {
	for pid in $processes; do
		kill -0 "$pid" 2>/dev/null || continue
		# A zombie has ended. It stays if its parent, such as a container's first process, never waits.
		{ read -r stat <"/proc/$pid/stat"; } 2>/dev/null || return 0
		case $stat in *') Z '*) ;; *) return 0 ;; esac
	done
	return 1
}

# SIGQUIT is the immediate shutdown of both postgres and pgbouncer. A postmaster then ends its backends
# (after 5 seconds, by SIGKILL) and frees its shared memory. A frozen process must be resumed first.
end_all() {
	signal_all -CONT
	signal_all -QUIT
	tries=0
	while any_alive && [ $tries -lt 400 ]; do
		sleep 0.02
		tries=$((tries + 1))
	done
	signal_all -KILL
}
end_all

# A daemon that a listed process started, such as Patroni's PostgreSQL, is not listed, but works below the
# directory. By now no process is left that would start it again.
processes=$(ls -l /proc/[0-9]*/cwd 2>/dev/null | while IFS= read -r line; do
	case $line in
	*" -> $dir/"*) line=${line%%/cwd -> *} && echo "${line##*/proc/}" ;;
	esac
done)
[ -z "$processes" ] || end_all

# A killed postmaster leaves its System V shared memory behind. Line 7 of its pid file names it.
for file in "$dir/data/postmaster.pid" "$dir"/*/data/postmaster.pid; do
	if [ -r "$file" ]; then
		sed -n 7p "$file" | while read -r _ id; do ipcrm -m "$id"; done >/dev/null 2>&1
	fi
done

tries=0
until rm -rf "$dir" 2>/dev/null || [ $tries -ge 100 ]; do # again if a dying process still writes
	sleep 0.05
	tries=$((tries + 1))
done
