//go:build unix

package command_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

func TestHTTPReportsTheLeaderToALoadBalancer(t *testing.T) {
	t.Parallel()
	address := freeAddress(t)
	release := occupy(t, shared.Get(t).DSN(), name(t))
	r := run(t, name(t), "--candidate", "me", "--http", address, "--", "sh", "-c", "echo ready; exec sleep 1000")
	r.logs(t, "leader changed")
	expectGet(t, address, "/healthz", http.StatusOK, `"status":"healthy"`)
	expectGet(t, address, "/readyz", http.StatusOK, `"status":"healthy"`)
	expectGet(t, address, "/leader", http.StatusServiceUnavailable, `"leading":false`)
	expectGet(t, address, "/metrics", http.StatusOK, fmt.Sprintf("pgelector_leader{election=%q} 0\n", name(t)))
	release()
	r.says(t, "ready")
	expectGet(t, address, "/leader", http.StatusOK, `"leading":true`)
	expectGet(t, address, "/readyz", http.StatusOK, `"leader":"me"`)
	expectGet(t, address, "/metrics", http.StatusOK, fmt.Sprintf("pgelector_leader{election=%q} 1\n", name(t)))
	expectGet(t, address, "/metrics", http.StatusOK, "process_start_time_seconds ")
	var l struct{ Token, Leader string }
	check(t, json.Unmarshal([]byte(get(t, address, "/leader").body), &l))
	if token, err := strconv.ParseInt(l.Token, 10, 64); err != nil || token <= 0 || l.Leader != "me" {
		t.Errorf("got %+v", l)
	}
	invoke(t, at(shared.Get(t).DSN()), quick(name(t), "--http", address, "--", "true")...).want(t, exit.Failure, "--http")
	r.signal(t, 15)
	r.ends(t, 128+15)
}

func TestHTTPReportsThatTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	cluster, address := own(t), freeAddress(t)
	r := launch(t, at(cluster.DSN()), quick(name(t), "--http", address, "--restart", "--", "sh", "-c", "echo ready; exec sleep 1000")...)
	r.says(t, "ready")
	expectGet(t, address, "/readyz", http.StatusOK, `"leading":true`)
	check(t, cluster.Kill())
	eventually(t, "it is not ready", func() bool { return get(t, address, "/readyz").status == http.StatusServiceUnavailable })
	expectGet(t, address, "/readyz", http.StatusServiceUnavailable, "the leader is unknown")
	expectGet(t, address, "/healthz", http.StatusOK, `"status":"healthy"`)
	check(t, cluster.Resume(t.Context()))
	eventually(t, "it is ready", func() bool { return get(t, address, "/readyz").status == http.StatusOK })
	r.signal(t, 15)
	r.ends(t, 128+15)
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer l.Close()
	return l.Addr().String()
}

type reply struct {
	status int
	body   string
}

func get(t *testing.T, address, path string) reply {
	t.Helper()
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + address + path)
	check(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	check(t, err)
	return reply{response.StatusCode, string(body)}
}

func expectGet(t *testing.T, address, path string, status int, text string) {
	t.Helper()
	if got := get(t, address, path); got.status != status || !strings.Contains(got.body, text) {
		t.Errorf("%s: got %d %q, want %d with %q", path, got.status, got.body, status, text)
	}
}
