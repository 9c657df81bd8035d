// Package child is a candidate in a process of its own: the program started again, told by one line of JSON
// on its standard input what to be, and by further lines what to do. It prints events as lines of JSON. It
// ends when its standard input does, and with its parent.
package child
