//go:build unix

package command_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pgelector/pgelector/e2e/pgcluster"
)

// withDatabase makes a database. It returns its address and a function that sets its epoch.
func withDatabase(t *testing.T) (env []string, setEpoch func(string)) {
	t.Helper()
	c, name := shared.Get(t), unique("database")
	conn := connection(t, c.DSN())
	_, err := conn.Exec(t.Context(), "CREATE DATABASE "+name)
	check(t, err)
	return at(c.DSN(pgcluster.ForDatabase(name))), func(epoch string) {
		_, err := conn.Exec(t.Context(), "ALTER DATABASE "+name+" SET pgelector.epoch = '"+epoch+"'")
		check(t, err)
	}
}

func TestDoctorShowsThePartsOfTheTokenAndComparesEpochs(t *testing.T) {
	t.Parallel()
	env, setEpoch := withDatabase(t)
	invoke(t, env, "doctor").want(t, exit.OK, "ok    token", ": timeline 1, transaction ", "epoch 0\n")
	invoke(t, env, "doctor", "--token-epoch", "4").want(t, exit.OK, "note  token", "timeline 1, ", "epoch 4 (--token-epoch): set the same for every candidate")
	setEpoch("3")
	for _, driver := range []string{"pgx", "pq"} {
		invoke(t, env, "doctor", "--driver", driver).want(t, exit.OK, "ok    token", "timeline 1, ", "epoch 3 (pgelector.epoch of the database)\n")
	}
	invoke(t, env, "doctor", "--token-epoch", "3").want(t, exit.OK, "ok    token", "epoch 3\n")
	invoke(t, env, "doctor", "--token-epoch", "4").want(t, exit.OK, "warn  token", "timeline 1, ", "epoch 4", "of the database is 3")
	invoke(t, env, "doctor", "--token-epoch", "2").want(t, exit.OK, "warn  token", "timeline 1, ", "epoch 3", "larger than --token-epoch 2")
	setEpoch("three")
	invoke(t, env, "doctor").want(t, exit.Refused, "FAIL  token", `pgelector.epoch of this database is "three"`, "ALTER DATABASE")
	invoke(t, env, "doctor", "--token-epoch", "32767").want(t, exit.Usage, "--token-epoch 32767: want 0 <= n <= 32766")
	invoke(t, env, "doctor", "--last-token=-1").want(t, exit.Usage, "--last-token -1")
}

// The epoch that doctor names is the smallest that suffices.
func TestDoctorNamesTheEpochThatMakesNewTokensLarger(t *testing.T) {
	t.Parallel()
	const large, small = 1<<48 - 1, 1 // transaction ids
	for name, c := range map[string]struct {
		last   int64
		needed int
	}{
		"an older transaction":                {1<<48 | small, 0},
		"a later transaction":                 {1<<48 | large, 1},
		"a later timeline":                    {5<<48 | small, 4},
		"a later timeline and transaction":    {5<<48 | large, 5},
		"the last timeline that there can be": {32767<<48 | small, 32766},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, setEpoch := withDatabase(t)
			doctor := func() result { return invoke(t, env, "doctor", "--last-token", fmt.Sprint(c.last)) }
			larger := "ok    last token       " + fmt.Sprint(c.last)
			if c.needed > 0 {
				setEpoch(fmt.Sprint(c.needed - 1))
				doctor().want(t, exit.Refused, "FAIL  last token", fmt.Sprintf("SET pgelector.epoch = '%d'", c.needed), fmt.Sprintf("WithTokenEpoch(%d)", c.needed))
			}
			setEpoch(fmt.Sprint(c.needed))
			doctor().want(t, exit.OK, larger, "new tokens are larger")
		})
	}
	env, _ := withDatabase(t)
	invoke(t, env, "doctor", "--last-token", fmt.Sprint(int64(32767<<48|large))).want(t, exit.Refused, "no epoch can make them so")
}

func TestTheEpochRaisesTheTokenOfTheCommand(t *testing.T) {
	t.Parallel()
	env, setEpoch := withDatabase(t)
	const token = `[ $((PGELECTOR_TOKEN >> 48)) = `
	run := func(sum string, flags ...string) {
		args := append([]string{"run", "--election", name(t)}, flags...)
		invoke(t, env, append(args, "--", "sh", "-c", token+sum+" ]")...).want(t, exit.OK)
	}
	run("1")
	run("6", "--token-epoch", "5")
	setEpoch("7")
	run("8", "--token-epoch", "5")
	setEpoch("three")
	r := invoke(t, env, "run", "--election", name(t), "--max-attempts", "1", "--", "true")
	if r.code == exit.OK || !strings.Contains(r.err, "pgelector.epoch") {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
}
