// Package history records what the processes of an election did, and checks from the
// record that the election kept its guarantees.
//
// # Recording
//
// Each process writes one [Event] per line, as JSON, with a [Recorder]. The program that
// started the processes collects the lines in a [Log] and adds the faults that it
// injected: killed, frozen, thawed, severed. All times come from the machine's monotonic
// clock, so times of different processes can be compared, and setting the wall clock does
// not change them.
//
// # Checking
//
// [Verify] returns a [Proof] per claim. A process counts as leading by what it did or
// believed, whatever the server says:
//
//   - its lead function was running: it began, took a step of its work, or returned;
//   - its IsLeader returned true. The result was valid at some moment between the call
//     and the return, so the process believed for certain from the first return of true
//     to the last call that returned true.
//
// A term lasts from the first of these moments to the last. A frozen process does and
// believes nothing, so its term ends with the last moment before the freeze. If it acts
// under that term after it thaws, the terms overlap and the proof fails.
//
// A write that was prepared during a term and arrives after it does not count as leading:
// no lock can prevent it. [LateWrites] checks that a fenced store refuses such writes.
//
// One overlap is allowed, because the library does not exclude it: if the server ends a
// leader's session (Severed), the leader learns it at its next heartbeat. Until then the
// next leader's term may overlap; the tokens tell the two apart. Proofs report these
// overlaps separately.
package history
