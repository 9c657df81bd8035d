package session

import "sync/atomic"

// A Backend is the server process behind a session. Until Start the owner of the session calls the Set
// methods, and then only calls of the session. Number never changes.
type Backend struct {
	Number int64 // tells the session from others of this process

	pid           int32                  // of the backend that the first statement reached
	serverStarted atomic.Pointer[string] // when its server started; nil or "" until a check or a request asks
	mark          string                 // of the transaction that owns the locks; "" before a statement has told
}

// Set records the backend that has answered, and when its server started.
func (b *Backend) Set(pid int32, started string) {
	b.pid = pid
	b.serverStarted.Store(&started)
}

// SetPID records the backend that answered the first statement.
func (b *Backend) SetPID(pid int32) { b.pid = pid }

// Is reports whether the session was last on that backend.
func (b *Backend) Is(pid int32, started string) bool { return b.pid == pid && b.started() == started }

// SetMark records when the server started, and the mark of the session's transaction, which only the
// transaction itself shows.
func (b *Backend) SetMark(started, mark string) {
	b.serverStarted.Store(&started)
	b.mark = mark
}

// Mark is what SetMark has recorded.
func (b *Backend) Mark() (started, mark string) { return b.started(), b.mark }

func (b *Backend) started() string {
	if started := b.serverStarted.Load(); started != nil {
		return *started
	}
	return ""
}
