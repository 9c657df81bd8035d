// Package doctor checks whether an election's promise can be kept on a
// database, through the connection that a program would use.
//
// Reading order: examine.go (the order of the checks), server.go, trial.go (an
// election of a random name, won and resigned), token.go (what its token is made of), room.go, time.go.
package doctor
