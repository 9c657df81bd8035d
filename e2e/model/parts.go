package model

// A Weakening takes one rule of a part away.
type Weakening struct{ Rule, What string }

// Parts are the parts of the protocol, and what each is weakened by.
var Parts = []struct {
	Name    string
	New     func(weakened string) *Part
	Weakens []Weakening
}{
	{"lease", Lease, []Weakening{
		{"FROM_ANSWER", "the validity counts from the answer"},
		{"NO_MARGIN", "no margin for the drift of clocks"},
		{"EARLY_UNLOCK", "the lock is released before the work has returned"},
		{"FREED_FIRST", "the lock is freed, and then the leader is told"},
		{"SEAT_LEADS", "the deputy's seat is taken for the lock"},
	}},
	{"dies", Dies, []Weakening{
		{"NO_DELAY", "without WithLockDelay, which is the default"},
		{"SHORT_DELAY", "the delay is shorter than the longest lease"},
		{"ANY_SESSION", "the age is asked on another session, before the grant"},
		{"NO_MARGIN", "no margin for the drift of clocks"},
	}},
	{"fence", Fence, []Weakening{
		{"NO_BARRIER", "no barrier"},
		{"EARLY_TOKEN", "the token is read before the lock is granted"},
		{"CHECK_FIRST", "a fenced transaction checks, and then shares the guard"},
		{"NO_CHECK", "a fenced transaction does not check its session"},
		{"NO_NAME", "it checks the process id alone"},
		{"NO_STAY", "in transaction scope nobody asks after Confirm"},
		{"NO_TOKEN", "another store does not compare the token"},
		{"TOKEN_FIRST", "another store compares the token, and then writes"},
	}},
	{"primaries", Primaries, []Weakening{
		{"NO_WAIT", "a new leader does not wait for a lease"},
		{"NO_MARGIN", "no margin for the drift of clocks"},
		{"ANY_STANDBY", "a commit counts that not every standby has received"},
		{"FROM_ANSWER", "the validity counts from the commit's answer"},
		{"SHORT_WAIT", "a new leader waits for its own, shorter lease"},
	}},
}
