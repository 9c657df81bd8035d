// Package status reads from the server who leads the elections of a database, who is the
// deputy and who waits.
//
// The server knows keys and sessions, not names, terms or tokens. So a name appears only if
// the caller gave it, and the time is the start of the leader's session. Followers that
// neither are the deputy nor wait do not appear. Other programs' advisory locks with a 64-bit key look like elections.
package status
