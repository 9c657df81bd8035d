# Usage: sh -c reaper.sh sh DIR, with a pipe as standard input.
#
# Waits until nobody holds the other end of the pipe, then ends the processes listed in DIR/run, and those
# that work below DIR, and removes DIR. Plain POSIX sh, for Debian's dash, macOS and busybox alike.

dir=$1
trap '' HUP INT TERM

while read -r _; do :; done

# A process enters itself into run/ before it starts to work (see process.go). After this rename none can
# enter any more, so the list in closed/ is complete.
mv "$dir/run" "$dir/closed" 2>/dev/null

# Each file is named by the id of a process that leads its own group.
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
		# One that has ended stays a zombie while its parent, which may be a container's idle first
		# process, does not ask for it.
		{ read -r stat <"/proc/$pid/stat"; } 2>/dev/null || return 0
		case $stat in *') Z '*) ;; *) return 0 ;; esac
	done
	return 1
}

# SIGQUIT is the immediate shutdown of both postgres and pgbouncer. A postmaster then ends its backends
# (after 5 seconds, by SIGKILL) and frees its shared memory. One that is frozen must be woken to obey.
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

# What a listed process has started as a daemon, as Patroni does its server, is in no list, but works below
# the directory. By now nobody is left who would start it again.
processes=$(ls -l /proc/[0-9]*/cwd 2>/dev/null | while IFS= read -r line; do
	case $line in
	*" -> $dir/"*) line=${line%%/cwd -> *} && echo "${line##*/proc/}" ;;
	esac
done)
[ -z "$processes" ] || end_all

# A postmaster that was killed could not free its System V shared memory; line 7 of its file names it.
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
