// Package doctor checks whether a database can keep an election's promise, through the
// connection that a program would use. Examination.Run in examine.go lists the checks.
package doctor
