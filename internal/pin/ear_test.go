package pin

import "testing"

// One who wants the slot later does not make the one who waits for quiet wait for ever.
func TestItIsQuietWhenTheLastOneHasLeftTheSlot(t *testing.T) {
	var e ear
	first := e.interrupt()
	_, quiet := e.begin(t.Context())
	second := e.interrupt()
	for _, done := range []func(){first, second} {
		select {
		case <-quiet:
			t.Fatal("it is quiet while somebody wants the slot")
		default:
		}
		done()
	}
	select {
	case <-quiet:
	default:
		t.Error("it does not become quiet")
	}
}
