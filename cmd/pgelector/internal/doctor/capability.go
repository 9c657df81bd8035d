package doctor

import (
	"fmt"
	"io"
)

// answer says whether the server can do something.
type answer string

const (
	yes     answer = "yes"
	no      answer = "no"
	unknown answer = "cannot tell"
)

// capability is the result of one probe. Text is from consequences, and so has no secret.
type capability struct {
	Name   string `json:"name"`
	Answer answer `json:"answer"`
	Text   string `json:"text"`
	Why    string `json:"why,omitempty"` // an error, which may name a host or a role
}

// The probes.
const (
	sessionLock        = "session lock"
	transactionLock    = "transaction lock"
	seenInLocks        = "seen in pg_locks"
	sessionTimeout     = "session timeout"
	transactionTimeout = "transaction timeout"
	notifies           = "NOTIFY"
	risingToken        = "rising token"
	acknowledged       = "synchronous acknowledgement"
)

// consequences are what an answer means for elections. Without a yes nothing is promised.
var consequences = map[string]struct{ yes, otherwise string }{
	sessionLock:        {"a session holds its lock, and a second one is refused", "no leader in session scope, no NewSession"},
	transactionLock:    {"a transaction holds its lock, and a second one is refused", "no leader in transaction scope"},
	seenInLocks:        {"a leader can verify its lock, and others see who leads", "nobody is elected: ErrUnsupportedServer"},
	sessionTimeout:     {"ends an idle session: the lease in session scope", "a frozen leader in session scope is not replaced in time"},
	transactionTimeout: {"ends an idle transaction: the lease in transaction scope", "a frozen leader in transaction scope is not replaced in time; InTx is not bounded"},
	notifies:           {"notifications arrive, which WithNotifier needs", "WithNotifier hears nothing here: followers wait for their next attempt"},
	risingToken:        {"each term has a larger token than the one before", "a fenced store cannot tell an old leader from the new one"},
	acknowledged:       {"WithSynchronousStandby works", "nobody is elected with WithSynchronousStandby"},
}

// needs are the capabilities without which nobody leads safely in a scope.
var needs = map[string][]string{
	"session":     {sessionLock, seenInLocks, sessionTimeout, risingToken},
	"transaction": {transactionLock, seenInLocks, transactionTimeout, risingToken},
}

// record keeps the answer of a probe. err may be nil.
func (x *Examination) record(name string, a answer, err error) {
	c := capability{Name: name, Answer: a, Text: consequences[name].otherwise}
	switch a {
	case yes:
		c.Text = consequences[name].yes
	case unknown:
		c.Text = "if it cannot: " + c.Text
	}
	if err != nil {
		c.Why = x.Target.Scrub(err.Error())
	}
	x.can = append(x.can, c)
}

// conclude says of what only an option needs that elections without the option work, if they do. It comes after all probes.
func (x *Examination) conclude() {
	scopes := x.scopes()
	if !x.Healthy() || scopes["session"] != yes && scopes["transaction"] != yes {
		return
	}
	for i := range x.can {
		if c := &x.can[i]; c.Name == acknowledged && c.Answer != yes {
			c.Text += "; elections without it work"
		}
	}
}

// scopes returns the verdict on each scope: no if one capability that it needs is missing, and yes if
// all are there.
func (x *Examination) scopes() map[string]answer {
	answers := map[string]answer{}
	for _, c := range x.can {
		answers[c.Name] = c.Answer
	}
	verdicts := map[string]answer{}
	for scope, names := range needs {
		verdict := yes
		for _, name := range names {
			switch a := answers[name]; {
			case a == no:
				verdict = no
			case a != yes && verdict == yes:
				verdict = unknown
			}
		}
		verdicts[scope] = verdict
	}
	return verdicts
}

// writeCapabilities writes the verdict on each scope, and then the answers, with their errors if
// those may be shown.
func (x *Examination) writeCapabilities(w io.Writer, errors bool) {
	scopes := x.scopes()
	fmt.Fprintf(w, "session scope: %s\ntransaction scope: %s\n\n", scopes["session"], scopes["transaction"])
	for _, c := range x.can {
		why := ""
		if errors && c.Why != "" {
			why = " (" + c.Why + ")"
		}
		line(w, fmt.Sprintf("%-11s  %-27s  ", c.Answer, c.Name), c.Text+why)
	}
	fmt.Fprintln(w)
}
