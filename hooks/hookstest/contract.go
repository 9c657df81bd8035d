package hookstest

import (
	"fmt"
	"slices"

	"github.com/pgelector/pgelector/hooks"
)

// contract checks each call against the contract of package hooks. The recorder's mutex
// guards it.
type contract struct {
	candidates map[hooks.Origin]*candidate
	owners     map[term]hooks.Origin
	violations []string
}

type candidate struct {
	running []string // hooks that have not returned
	served  bool     // has had a term
	leading bool
	token   int64 // of the newest term
}

// term identifies a term. Only one candidate can have it.
type term struct {
	election string
	key      int64
	token    int64
}

func (c *contract) begin(from hooks.Origin, method string) {
	who := c.candidate(from)
	if len(who.running) > 0 {
		c.breach(from, "%s called before %s returned", method, who.running[len(who.running)-1])
	}
	who.running = append(who.running, method)
}

func (c *contract) end(from hooks.Origin, method string) {
	who := c.candidate(from)
	i := slices.Index(who.running, method)
	who.running = slices.Delete(who.running, i, i+1)
}

func (c *contract) check(event any) {
	switch e := event.(type) {
	case hooks.Elected:
		c.elected(e)
	case hooks.Demoted:
		c.demoted(e)
	}
}

func (c *contract) elected(e hooks.Elected) {
	who := c.candidate(e.Origin)
	if who.leading {
		c.breach(e.Origin, "Elected with token %d during the term with token %d", e.Token, who.token)
	}
	if who.served && e.Token <= who.token {
		c.breach(e.Origin, "token %d does not rise above %d", e.Token, who.token)
	}
	t := term{election: e.Election, key: e.Key, token: e.Token}
	if owner, taken := c.owners[t]; taken && owner != e.Origin {
		c.breach(e.Origin, "token %d already belonged to %s", e.Token, label(owner))
	}
	if c.owners == nil {
		c.owners = make(map[term]hooks.Origin)
	}
	c.owners[t] = e.Origin
	who.served, who.leading, who.token = true, true, e.Token
}

func (c *contract) demoted(e hooks.Demoted) {
	who := c.candidate(e.Origin)
	switch {
	case !who.leading:
		c.breach(e.Origin, "Demoted with token %d without a term", e.Token)
	case e.Token != who.token:
		c.breach(e.Origin, "Demoted with token %d from the term with token %d", e.Token, who.token)
	}
	who.leading = false
}

func (c *contract) candidate(from hooks.Origin) *candidate {
	who := c.candidates[from]
	if who == nil {
		if c.candidates == nil {
			c.candidates = make(map[hooks.Origin]*candidate)
		}
		who = new(candidate)
		c.candidates[from] = who
	}
	return who
}

func (c *contract) breach(from hooks.Origin, format string, args ...any) {
	c.violations = append(c.violations, label(from)+": "+fmt.Sprintf(format, args...))
}
