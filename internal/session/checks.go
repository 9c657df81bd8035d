package session

import (
	"database/sql"
	"slices"
)

// What the check of a server records in a Source.

// A Finding is what a check has found of a server that passed.
type Finding struct {
	InTransaction bool  // in transaction scope
	Deaf          error // why the driver's connections cannot be waited on; nil if they can
	MetStandby    bool  // other connections of the pool led to a standby
	Pooled        bool  // in transaction scope because of a pooler
}

// Pool is the pool that sessions are taken from.
func (from *Source) Pool() *sql.DB { return from.pool }

// ReachedPrimary records that a connection led to a primary.
func (from *Source) ReachedPrimary() { from.meet(aPrimary) }

// Passed records a check that has passed.
func (from *Source) Passed(found Finding) {
	from.meet(aPassedServer)
	from.inside.Store(found.InTransaction)
	from.deaf.Store(&found.Deaf)
	from.metStandby = found.MetStandby
}

// MetStandby reports whether the last check has met connections to a standby.
func (from *Source) MetStandby() bool { return from.metStandby }

func (from *Source) meet(what int32) { from.met.Store(max(from.met.Load(), what)) }

// UseTransactions has sessions lent inside transactions from now on, or not.
func (from *Source) UseTransactions(use bool) { from.inside.Store(use) }

// HasAllSettings reports whether no setting was left out.
func (from *Source) HasAllSettings() bool {
	return len(from.Settings) == len(settings(from.Name, from.Lease))
}

// ResetSettings has all settings tried again.
func (from *Source) ResetSettings() { from.Settings = settings(from.Name, from.Lease) }

// SettingsWith are the settings with another value of one, as a parameter of a statement.
func (from *Source) SettingsWith(name, value string) string {
	return Encode(append(slices.DeleteFunc(slices.Clone(from.Settings), func(s Setting) bool { return s.Name == name }), Setting{name, value}))
}

// Invalidate has the server checked again before the next Retry.
func (from *Source) Invalidate() { from.checked = false }
