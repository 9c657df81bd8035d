//go:build unix

// Package supervise runs a command so that no process of it outlives the term.
//
// # What is not promised
//
// A process in uninterruptible sleep, or one that became another user's, cannot be killed.
// The lock is then held as long as the session lives; after that the process runs on. If
// the guard and the supervisor are killed at the same instant, the kernel kills the
// command, but not its children. On systems other than Linux, processes that leave the
// command's process group are not followed.
//
// # Three processes
//
//	supervisor ──control pipe──▶ guard ──fork──▶ command (own process group) ─▶ its children
//	 the election   ◀──reports──   (own process group)
//
// The supervisor holds the lock. The guard, a second process of this program, is the
// command's parent. It ends the command on request, and in three cases that the supervisor
// cannot handle:
//
//   - The supervisor is frozen: the term's deadline passes, because no heartbeat extends
//     it. The guard's clock includes the time that the machine sleeps.
//   - The supervisor is killed: the control pipe closes. The lock is free at once, so the
//     guard kills at once.
//   - The guard is killed: the kernel kills the command (PR_SET_PDEATHSIG), and the
//     supervisor kills the command's children.
//
// Both are child subreapers (PR_SET_CHILD_SUBREAPER): orphans stay below them, and wait4
// returns ECHILD only when no process is left.
//
// A supervisor may have many guards, one for each command. Whatever it has below itself that is
// not below a living guard belongs to a guard that was killed.
//
// # How a command ends
//
//	running ── Stop, or the deadline passed, or the command ended ────────────▶ stopping: TERM to all
//	                                                                            │ the grace is over
//	                                                                            ▼
//	gone ◀── nothing is left ───────────────────────────────────────────── killing: KILL, until
//
// Reading order: child.go (the supervisor's side), message.go (the messages), guard.go (the
// states above), family.go (the command's processes).
package supervise
