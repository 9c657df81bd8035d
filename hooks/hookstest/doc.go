// Package hookstest records what an election reports, so that a test can wait
// for an event instead of sleeping and hoping.
//
//	rec := hookstest.NewRecorder()
//	e, err := elector.New(pool, "orders", elector.WithHooks(rec))
//	...
//	elected, err := hookstest.Wait[hooks.Elected](ctx, rec, nil)
//
// [Wait] and [WaitN] look at all events, past and future. [Next] goes on from
// where a [Cursor] stands, for tests that say "and after that". No function of
// this package sleeps or polls. All of it works in a testing/synctest bubble; the
// elector has to run in the same bubble as the test that waits.
//
// A Recorder also checks the contract of package hooks. End a test with
//
//	for _, v := range rec.Violations() {
//		t.Error(v)
//	}
package hookstest
