package electortest

// A Handler answers the statements of the tested program: those that are not of this
// library. It is called on the server's goroutines, one call at a time for each connection,
// and may block, which prolongs the statement. Its error fails the statement.
type Handler func(Statement) (Answer, error)

// A Statement is a statement that a client sent.
type Statement struct {
	SQL  string
	Args []any // int64, float64, bool, []byte, string, time.Time or nil
	PID  int32 // of the backend that executes it

	tx *transaction
}

// OnCommit registers fn to be called if the statement's transaction commits, before its
// locks are released and its client is answered. fn must not block or call the server.
func (s Statement) OnCommit(fn func()) { s.tx.commit = append(s.tx.commit, fn) }

// An Answer is the result of a statement. The zero value has no rows, and affects none.
type Answer struct {
	Columns  []string // may be nil: the names are then empty
	Rows     [][]any  // values that driver.IsValue accepts
	Affected int64
}

// others executes a statement of the tested program.
func others(x *execution, m *message) (Answer, error) {
	handler := x.server.handler
	if handler == nil {
		return Answer{}, newError(unsupported, "electortest has no handler for statements other than pgelector's (Server.Handle): %s", m.query)
	}
	x.server.mu.Unlock()
	defer x.server.mu.Lock()
	return handler(Statement{SQL: m.query, Args: m.args, PID: x.pid, tx: x.tx})
}
