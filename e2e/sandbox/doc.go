//go:build unix

// Package sandbox runs programs in a directory of their own, and leaves neither behind.
//
// Each directory has a reaper: a small shell script (reaper.sh) in a session of its own, whose standard
// input is a pipe that only this process holds. The pipe closes when [Sandbox.Destroy] closes it, and also
// when this process ends in whatever way: return, panic, Ctrl-C, kill -9. Then the reaper ends what is listed
// in run/, and on Linux whatever works in a directory below, and removes the directory. Destroy cleans up in
// no other way, so what every test uses is also what works after a crash.
//
// Programs run in sessions of their own: a Ctrl-C in the terminal reaches the Go process only. For root they
// run as the user postgres, or nobody, since PostgreSQL and pgbouncer refuse to run as root.
package sandbox
