// Package status reads from the server who leads the elections of a database and who waits.
//
// The server knows keys and sessions, not names, terms or tokens. So a name appears only if
// the caller gave it, and the time is the start of the leader's session. Candidates that
// poll do not appear. Other programs' advisory locks with a 64-bit key look like elections.
package status
