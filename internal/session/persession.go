package session

// A PerSession is what a part keeps of each session, for as long as anybody has the session: what it
// knows is needed by functions that are called at its end. The zero value is ready. It must not be copied.
type PerSession[T any] struct{ _ byte } // not empty: its address is the key in Session.kept

// Of returns what is kept of the session. Any goroutine may call it.
func (p *PerSession[T]) Of(s *Session) *T {
	of, ok := s.kept.Load(p)
	if !ok {
		of, _ = s.kept.LoadOrStore(p, new(T))
	}
	return of.(*T)
}
