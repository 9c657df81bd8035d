package model

// Dies is the part of a server whose host dies, and of candidates with WithLockDelay: the server is back, or a standby
// is promoted, before the lease of the last leader is over, and has no locks. Nobody is told. So nobody leads on a server
// that has run for less than the delay, by the clock of whoever looks (package lockdelay).
func Dies(weakened string) *Part { return lease("dies", weakened, true) }
