package electortest

// The statements of the kernel (queries/election.sql).

// tryElection's arguments are the key, the settings, and whether to look for the holder of a busy lock.
func tryElection(x *execution, m *message) (Answer, error) {
	outcome, err := x.tryKey(m.integer(0))
	if err == nil && outcome == "granted" {
		err = x.setUp(m.text(1))
	}
	leader, id := int64(0), ""
	if h := x.server.holder(bigint(m.integer(0))); h != nil && m.bool(2) && outcome == "busy" {
		leader = int64(h.pid)
		id, _ = h.settings.get("application_name")
	}
	return one(outcome, int64(x.pid), leader, id), err
}

// tryKey tries the lock of an election.
func (x *execution) tryKey(key int64) (outcome string, err error) {
	if x.server.recovery {
		return "standby", nil
	}
	granted, err := x.server.locks.try(x.backend, bigint(key), exclusive, bySession)
	if granted {
		return "granted", err
	}
	return "busy", err
}

// setUp applies the settings, tells others the lease, and marks the transaction.
func (x *execution) setUp(settings string) error {
	_, err := x.apply(settings, false, x.knows)
	if err == nil {
		err = x.tellLease(settings, bySession)
	}
	if err == nil {
		err = x.setMark()
	}
	return err
}

// confirmElection's arguments are the two integers of the guard, and the key.
func confirmElection(x *execution, m *message) (Answer, error) {
	inTransaction := x.isMarked()
	if inTransaction || x.server.holder(bigint(m.integer(2))) != x.backend {
		return one(false, int64(x.pid), inTransaction, int64(0), x.server.epoch), nil
	}
	if err := x.acquire(twoIntegers(m.integer(0), m.integer(1)), exclusive, byTransaction); err != nil {
		return Answer{}, err
	}
	if err := x.tellSince(bySession); err != nil {
		return Answer{}, err
	}
	token, err := x.token()
	return one(true, int64(x.pid), false, token, x.server.epoch), err
}

// holdsElection's argument is the key.
func holdsElection(x *execution, m *message) (Answer, error) {
	return one(x.server.holder(bigint(m.integer(0))) == x.backend, int64(x.pid)), nil
}

func whoAnswers(x *execution, _ *message) (Answer, error) {
	return one(int64(x.pid), x.server.recovery), nil
}
