// Package history records what the processes of an election saw of it, and
// proves from the record that the promise was kept.
//
// # Recording
//
// Each process writes one [Event] per line, as JSON, by a [Recorder]; whoever
// started the processes gathers the lines in a [Log], and adds what it did to
// them: killed, frozen, thawed, severed. All times are of one clock, the
// machine's monotonic one, so those of two processes can be compared, and no
// setting of the wall clock disturbs them.
//
// # Proving
//
// [Verify] returns a [Proof] per claim. What counts as leading is what a process
// did or believed, not what the server thought of it:
//
//   - its lead was running: it began, took a step of its work, or returned;
//   - its IsLeader answered true. The answer was true at some moment between
//     the question and the answer, so a term is held to have been believed in
//     from the first true answer to the last question that was answered by true.
//
// A term spans from the first of these moments to the last. A process that was
// frozen does and believes nothing, so its terms end with the last moment before,
// unless it does something more when it thaws: then the spans overlap, and the
// proof fails.
//
// A write that was prepared under a term and comes after it is no leading: no
// lock can prevent it. [LateWrites] is the claim about those: a store that fences
// refuses them.
//
// One thing is excused, because it is not promised, and shown on a line of its
// own: where the server itself ended the session of a leader (Severed), the
// leader learns of it by its next heartbeat. For so long the next leader's term
// may overlap, and the tokens tell the two apart.
package history

// Timeline is who led when, and what was done meanwhile: what a picture is drawn
// from. Times are milliseconds from its beginning.
type Timeline struct {
	Length int
	Rows   []string // who may lead, in the order in which they are drawn: each begins with its name
	Terms  []Stretch
	Faults []Stretch
}

// Stretch is a term of a row, or a fault of a name.
type Stretch struct {
	Name     string
	From, To int
}
