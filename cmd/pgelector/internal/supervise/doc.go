//go:build unix

// Package supervise runs a command so that nothing of it outlives the leadership
// that it runs under.
//
// # What is not promised
//
// A process in uninterruptible sleep, or one that became another user's, cannot
// be ended: then the lock is kept for as long as the session lives, and after
// that the process runs on. If the guard and the supervisor are killed in the
// same instant, the kernel kills the command, but not its children. Elsewhere
// than on Linux a process that leaves the command's process group is not
// followed, and a command whose guard is killed is found by its group alone.
//
// # Three processes
//
//	supervisor ──control pipe──▶ guard ──fork──▶ command (own process group) ─▶ its children
//	 the election   ◀──reports──   (own process group)
//
// The supervisor holds the lock. The guard, the same program again, is the
// command's parent. It ends the command when told to, and by itself in three
// cases that the supervisor cannot handle:
//
//   - The supervisor is frozen: the term's deadline, which each heartbeat
//     extends, passes. The guard measures it by a clock that runs on while the
//     machine sleeps.
//   - The supervisor is killed: the control pipe closes. The lock is free at that
//     moment, so the guard kills at once.
//   - The guard itself is killed: the kernel kills the command (PR_SET_PDEATHSIG),
//     and the supervisor what the command has started.
//
// Both are child subreapers (PR_SET_CHILD_SUBREAPER), so a process that lost its
// parent stays below them, and wait4 says ECHILD only when nothing is left.
//
// # How a command ends
//
//	running ── told to stop, or the deadline passed, or the command ended ──▶ stopping: TERM to all
//	                                                                            │ the grace is over
//	                                                                            ▼
//	gone ◀── nothing is left ───────────────────────────────────────────── killing: KILL, until
//
// Reading order: child.go (the supervisor's side), message.go (what the two say),
// guard.go (the states above), family.go (who belongs to the command).
package supervise
