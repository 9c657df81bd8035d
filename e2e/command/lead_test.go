//go:build unix

package command_test

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
)

// leadAlone starts a candidate without a command, and returns its address.
func leadAlone(t *testing.T, candidate string) (r *running, address string) {
	t.Helper()
	address = freeAddress(t)
	r = launch(t, at(shared.Get(t).DSN()), "lead", name(t), "--candidate", candidate, "--http", address)
	r.logs(t, "HTTP endpoints")
	return r, address
}

// ready waits until /readyz of that address has the status, and /leader with it.
func ready(t *testing.T, address string, status int) reply {
	t.Helper()
	eventually(t, http.StatusText(status), func() bool { return get(t, address, "/readyz").status == status })
	return get(t, address, "/leader")
}

func TestLeadIsReadyOnlyWhileItLeads(t *testing.T) {
	t.Parallel()
	first, here := leadAlone(t, "first")
	if got := ready(t, here, http.StatusOK); got.status != http.StatusOK || !strings.Contains(got.body, `"token":"`) {
		t.Errorf("got %+v", got)
	}
	second, there := leadAlone(t, "second")
	second.logs(t, "leader changed")
	if got := ready(t, there, http.StatusServiceUnavailable); !strings.Contains(got.body, `"leader":"first"`) {
		t.Errorf("got %+v", got)
	}
	if got := get(t, there, "/healthz").status; got != http.StatusOK {
		t.Errorf("a follower's /healthz: %d", got)
	}
	terminate(t, shared.Get(t).DSN(), name(t))
	ready(t, there, http.StatusOK)
	ready(t, here, http.StatusServiceUnavailable) // and it campaigns again
	second.signal(t, syscall.SIGTERM)
	second.ends(t, exit.OK)
	ready(t, here, http.StatusOK)
	first.signal(t, syscall.SIGINT)
	first.ends(t, exit.SignalBase+int(syscall.SIGINT))
}

func TestLeadNeedsSomebodyToAsk(t *testing.T) {
	t.Parallel()
	invoke(t, at(shared.Get(t).DSN()), "lead", name(t)).want(t, exit.Usage, "--http")
}

func TestVariablesStandForFlags(t *testing.T) {
	t.Parallel()
	dsn := shared.Get(t).DSN()
	env := []string{"PGELECTOR_DSN=" + dsn, "PGELECTOR_ELECTION=" + name(t), "PGELECTOR_CANDIDATE=first", "PGELECTOR_TIMEOUT=10s"}
	print := "echo $PGELECTOR_ELECTION $PGELECTOR_CANDIDATE"
	invoke(t, env, "run", "--", "sh", "-c", print).want(t, exit.OK, name(t)+" first\n")
	invoke(t, env, "run", "--candidate", "second", "--", "sh", "-c", print).want(t, exit.OK, name(t)+" second\n")
	invoke(t, append(env, "PGELECTOR_LEASE=long"), "run", "--", "true").want(t, exit.Usage, `PGELECTOR_LEASE="long"`, "--lease")
	// What a command of run starts is another candidate, of its own election.
	nested := built(t) + " run -- true"
	invoke(t, env, "run", "--", "sh", "-c", nested).want(t, exit.Usage, "--election NAME is missing")
}
