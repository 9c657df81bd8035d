// Package status reads from the server who leads the elections of a database, who is the
// deputy and who waits.
//
// The server knows keys and sessions, not names, terms or tokens. So a name appears only if
// the caller gave it. Since when a session leads, and its lease, it tells by its locks; other
// programs, and a session of many elections, do not tell the first. Followers that
// neither are the deputy nor wait do not appear. Other programs' advisory locks with a 64-bit key look like elections.
package status
