// Package status tells who leads the elections of a database, and who waits.
//
// Without a table of its own the server knows keys, not names: a name is shown
// for the elections that were asked for by name. It knows sessions, not terms:
// the time shown is when the leader's session began, not later than its term.
// The token is known to the leader alone. A candidate that polls holds nothing
// in the server, so it does not show as waiting. Other programs' advisory locks
// of a 64-bit key show like elections.
package status
