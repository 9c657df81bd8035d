package hooks

import "time"

// Origin says which candidate reports an event. Every event value embeds it.
type Origin struct {
	Election    string // the name given to elector.New
	Key         int64  // the advisory lock key of the election
	CandidateID string // the candidate whose elector reports the event
}

// Elected is reported when the candidate's term begins: the lock is granted,
// verified in pg_locks, and the fencing token is known.
type Elected struct {
	Origin
	Token         int64         // the term's fencing token
	At            time.Time     // when the term began, on this process's clock
	Campaigned    time.Duration // from the start of the campaign to At; says nothing about how long nobody led
	Deadline      time.Time     // when the term ends unless a heartbeat extends it
	InTransaction bool          // the lock is held inside a transaction (elector.TransactionScope)
	NotListening  error         // why the loss of the session is looked for each 250 ms, and not listened for; nil if it is

	// Who led before, as far as this candidate knows: from its own terms, and from what its attempts
	// have found, which look for the leader only if there is a hook for OnLeaderChanged. Why the term of
	// another ended it cannot know: the server shows a free lock, whether that was released or lost.
	Previous       string        // a candidate id, perhaps this one; "" if it has known of none
	PreviousReason Reason        // why that term ended; "" unless it was a term of this elector
	Leaderless     time.Duration // for how long nobody led, at most: since somebody was last known to lead; 0 if nobody was
	Offered        bool          // the leader had offered its lock to this candidate (elector.Term.TransferTo), which waited for it
}

// Demoted is reported when a term has ended and all of its work has returned.
type Demoted struct {
	Origin
	Token  int64
	Reason Reason
	Err    error         // context.Cause of the term's context; wraps a sentinel of package elector
	At     time.Time     // when the term ended: its context was cancelled, or its deadline if that was before
	Held   time.Duration // from the start of the term to At
	Late   time.Duration // from At until the context was cancelled: how long the process stood still at its deadline, say

	LeadReturned bool // lead returned nil, with which Run or TryRun ends
}

// Reason says why a term ended. It is always one of the constants below.
type Reason string

// The reasons why a term ends.
const (
	Resigned     Reason = "resigned"      // Term.Resign was called, or lead returned nil
	Requested    Reason = "requested"     // somebody asked for it (elector.RequestResign, RequestTransfer), or waits for the end of the leader's transaction; Demoted.Err says who
	Preempted    Reason = "preempted"     // a candidate of higher priority asked for the lock (elector.WithPriority); Demoted.Err says which
	Shutdown     Reason = "shutdown"      // the context of Run, TryRun or Start ended, or Stop or Close was called
	SessionLost  Reason = "session_lost"  // the server ended the session, or the connection broke
	LeaseExpired Reason = "lease_expired" // no heartbeat was answered, or no commit acknowledged (elector.WithSynchronousStandby), in time
	Unhealthy    Reason = "unhealthy"     // the candidate's health check fell below its minimum
	LeadFailed   Reason = "lead_failed"   // lead returned an error or panicked, or OnElected panicked
)

// Reasons returns every Reason, so that metrics can start every series at 0.
func Reasons() []Reason {
	return []Reason{Resigned, Requested, Preempted, Shutdown, SessionLost, LeaseExpired, Unhealthy, LeadFailed}
}

// LeaderChanged is reported when a candidate, leader or not, sees that another session
// leads than before; docs/operating.md says how soon. Only a candidate whose own term has
// ended, or that is unhealthy, reports that nobody leads: any other would lead itself.
// After a lost term it means that no leader is known.
type LeaderChanged struct {
	Origin
	Previous string // candidate id of the previous leader, "" if there was none
	Current  string // candidate id of the leader now, "" if nobody leads
	PID      int32  // the backend process id of the leader's session, 0 if nobody leads
	At       time.Time
}

// Failure is reported once for every failure, even if the elector also returns the error.
// One exception: quick attempts at the beginning of an outage (elector.WithBackoff) are
// reported only if they fail permanently. Campaign is reported for each.
type Failure struct {
	Origin
	Op        Op
	Err       error // wraps a sentinel of package elector where one applies, and the driver's error; of a panic, errors.As finds an interface{ Stack() string }
	At        time.Time
	Attempt   int  // for OpCampaign: the number of attempts in a row that failed, not counting quick ones
	Permanent bool // the elector gives up: Run or Campaign returns Err
	Once      bool // for OpCampaign: TryCampaign or TryRun returns Err, and nothing goes on

	Returned <-chan struct{} // for OpWork, for OpHook if a hook does not return, and for OpPool: closed once that is over; else nil
	Since    time.Time       // with Returned: when the work's context was cancelled, the hook was called, or the wait began
}

// Op says which operation failed.
type Op string

// The operations that can fail.
const (
	OpCampaign  Op = "campaign"  // an attempt to be elected
	OpHeartbeat Op = "heartbeat" // the proof that the session lives; its failure ends the session
	OpRelease   Op = "release"   // the unlock at the end of a term
	OpWork      Op = "work"      // the term's work overran its drain (elector.ErrOverrun)
	OpLead      Op = "lead"      // lead returned an error after its term had ended (elector.ErrLeadFailed)
	OpHook      Op = "hook"      // a hook panicked, or has not returned (Failure.Returned)
	OpSetting   Op = "setting"   // the server refused a session setting; the session goes on without
	OpHealth    Op = "health"    // the candidate has become unhealthy (WithHealth): told before the OnDemoted of its term
	OpRequest   Op = "request"   // a request to go that the leader refused (WithRequests) or cannot look for, or whose successor did not come; the term goes on
	OpCall      Op = "call"      // a driver call did not return in time and was abandoned
	OpToken     Op = "token"     // the term's token has fallen (elector.ErrTokenFell); the term goes on
	OpLeader    Op = "leader"    // nobody leads, and nobody can: the leader is silent (elector.ErrLeaderSilent), told once by the deputy or who polls; or somebody else keeps the lock (elector.ErrNoLeader), told once a minute
	OpPool      Op = "pool"      // the pool gives the deputy no connection beside its own, for as long as an attempt would wait (Failure.Returned)
)

// Ops returns every Op, as Reasons does.
func Ops() []Op {
	return []Op{OpCampaign, OpHeartbeat, OpRelease, OpWork, OpLead, OpHook, OpSetting, OpHealth, OpRequest, OpCall, OpToken, OpLeader, OpPool}
}

// Heartbeat is reported after each heartbeat that the server answered.
type Heartbeat struct {
	Origin
	Token    int64
	At       time.Time     // when the answer came
	Took     time.Duration // the round trip
	Deadline time.Time     // when the term now ends unless extended again
}

// Campaign is reported after each attempt to be elected, once per heartbeat interval while
// the candidate is the deputy, and when a deputy gives its seat up because it stops or has
// become unhealthy.
type Campaign struct {
	Origin
	Attempt       int // counts the attempts of this campaign, from 1
	Outcome       Outcome
	Deputy        bool // this candidate holds the deputy's seat, until another event says otherwise
	Polls         bool // this candidate never becomes the deputy (elector.Poll, or an elector of an elector.Session)
	InTransaction bool // the candidate is in transaction scope: by elector.WithScope, or because a pooler was found
	Took          time.Duration
	At            time.Time     // when the attempt ended
	Next          time.Duration // the wait before the next attempt; 0 if none is left, if this is the deputy, or if a shared session sets the pace
	WasUnhealthy  time.Duration // with the first attempt of a candidate that is healthy again: for how long it was not; else 0
}

// Closed is reported when the elector is closed (elector.Elector.Close, or Close of its
// elector.Session): it is no candidate any more.
type Closed struct {
	Origin
	At time.Time
}

// Outcome is the outcome of an attempt to be elected.
type Outcome string

// The outcomes of an attempt.
const (
	Granted Outcome = "granted" // this candidate now leads
	Busy    Outcome = "busy"    // another session holds the lock
	Failed  Outcome = "failed"  // the server did not answer, or the elector refuses it

	// TooEarly means that the candidate waits, because a leader on a server that is gone, or was
	// replaced, may still believe that it leads (elector.WithLockDelay, WithSynchronousStandby).
	TooEarly Outcome = "too_early"
)

// Outcomes returns every Outcome, as Reasons does.
func Outcomes() []Outcome { return []Outcome{Granted, Busy, Failed, TooEarly} }
