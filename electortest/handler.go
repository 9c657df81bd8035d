package electortest

// A Handler answers the statements that are not of this library: those of the
// program that is tested. It is called on a goroutine of the server's, one at a
// time for each connection, and may block or sleep: so long does the statement
// take. An error becomes the answer; one with a method SQLState, such as an
// *[Error], is passed as it is.
type Handler func(Statement) (Answer, error)

// A Statement is what a client has sent.
type Statement struct {
	SQL  string
	Args []any // int64, float64, bool, []byte, string, time.Time or nil
	PID  int32 // of the backend that executes it

	tx *transaction
}

// OnCommit has fn called when the statement's transaction commits, before its
// locks are released and its client is told. If it rolls back, fn is not called.
// fn must not block, nor call the server.
func (s Statement) OnCommit(fn func()) { s.tx.commit = append(s.tx.commit, fn) }

// An Answer is what a statement results in. The zero value is that of a statement
// that returns and affects no row.
type Answer struct {
	Columns  []string // may be left out: a column's name is then empty
	Rows     [][]any  // of values that driver.IsValue accepts
	Affected int64
}

// others executes a statement that is not of this library.
func others(x *execution, m *message) (Answer, error) {
	handler := x.server.handler
	if handler == nil {
		return Answer{}, newError(unsupported, "electortest understands only the statements of pgelector, and has no handler for others (Server.Handle): %s", m.query)
	}
	x.server.mu.Unlock()
	defer x.server.mu.Lock()
	return handler(Statement{SQL: m.query, Args: m.args, PID: x.pid, tx: x.tx})
}
