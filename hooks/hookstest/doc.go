// Package hookstest records the events of an election, so that a test can wait for an
// event instead of sleeping.
//
//	rec := hookstest.NewRecorder()
//	e, err := elector.New(pool, "orders", elector.WithHooks(rec))
//	...
//	elected, err := hookstest.Wait[hooks.Elected](ctx, rec, nil)
//
// [Wait] and [WaitN] match past and future events. [Next] matches the events after a
// [Cursor]. No function of this package sleeps or polls. All of it works in a
// testing/synctest bubble, if the elector runs in the same bubble as the test.
//
// A Recorder also checks the contract of package hooks. End a test with
//
//	for _, v := range rec.Violations() {
//		t.Error(v)
//	}
package hookstest
