//go:build unix

package main

import (
	"database/sql"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/e2e/sandbox"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/examples"
	"github.com/pgelector/pgelector/roster"
)

var shared = pgcluster.NewShared()

func TestMain(m *testing.M) { goleak.VerifyTestMain(shared.Around(m)) }

const timeout = 90 * time.Second

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(timeout); !happened(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", timeout, what)
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	check(t, err)
	return string(text)
}

// receiver keeps what the service sends, once for each key.
type receiver struct {
	mu    sync.Mutex
	items map[string]string // by key
	away  bool
	asked int // while it is away
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	body, _ := io.ReadAll(q.Body)
	switch key := q.Header.Get("Idempotency-Key"); {
	case r.away && q.Method == http.MethodPost:
		w.Header().Set("Location", "/elsewhere") // which answers 200 to a GET
		w.WriteHeader([]int{http.StatusMovedPermanently, http.StatusTooManyRequests, http.StatusBadGateway}[r.asked%3])
		r.asked++
	case q.Method != http.MethodPost:
	case string(body) == "refused":
		w.WriteHeader(http.StatusBadRequest)
	default:
		r.items[key] = string(body)
	}
}

func (r *receiver) has(items int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.items) >= items
}

// hasAsked reports whether it was asked that often while it was away.
func (r *receiver) hasAsked(times int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked >= times
}

func (r *receiver) is(away bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = away
}

// replica is a process of the service.
type replica struct {
	*exec.Cmd
	url  string
	logs string // a file
}

// build builds the package of the Dockerfile, with flags that share what other tests have compiled.
func build(t *testing.T) string {
	t.Helper()
	line := regexp.MustCompile(`(?m)^RUN CGO_ENABLED=0 go build -C (\S+) .* -o /service (\S+)$`).FindStringSubmatch(read(t, "Dockerfile"))
	program := filepath.Join(t.TempDir(), "service")
	cmd := exec.Command("go", "build", "-C", filepath.Join("../..", line[1]), "-o", program, line[2])
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return program
}

func start(t *testing.T, program, dsn, receiver string) replica {
	t.Helper()
	port, err := sandbox.FreePort()
	check(t, err)
	address := net.JoinHostPort(sandbox.Loopback, strconv.Itoa(port))
	logs, err := os.CreateTemp(t.TempDir(), "logs")
	check(t, err)
	defer logs.Close()
	r := replica{exec.Command(program), "http://" + address, logs.Name()}
	r.Env = append(os.Environ(), "DATABASE_URL="+dsn, "RECEIVER="+receiver, "ADDRESS="+address, "REPORT=@every 1s")
	r.Stderr = logs
	check(t, r.Start())
	t.Cleanup(func() {
		_ = r.Process.Kill()
		_ = r.Wait()
		if t.Failed() {
			t.Logf("a replica logged\n%s", read(t, r.logs))
		}
	})
	return r
}

var client = &http.Client{Timeout: timeout, Transport: &http.Transport{DisableKeepAlives: true}}

func (r replica) get(path string) (status int, text string) {
	answer, err := client.Get(r.url + path)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(body)
}

func (r replica) leads() bool {
	_, metrics := r.get("/metrics")
	return strings.Contains(metrics, `pgelector_leader{election="service"} 1`)
}

func (r replica) order(t *testing.T, item string) {
	t.Helper()
	answer, err := client.PostForm(r.url+"/orders", url.Values{"item": {item}})
	check(t, err)
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("an order is answered by %s", answer.Status)
	}
}

func TestTheServiceWorksWhileItsLeaderIsKilledOrStopped(t *testing.T) {
	dsn := shared.Get(t).DSN()
	got := &receiver{items: map[string]string{}}
	server := httptest.NewServer(got)
	defer server.Close()
	program := build(t)
	all := []replica{start(t, program, dsn, server.URL), start(t, program, dsn, server.URL), start(t, program, dsn, server.URL)}
	paths := append(regexp.MustCompile(`path: (/\w+)`).FindAllStringSubmatch(read(t, "kubernetes.yaml"), -1), []string{"", "/metrics"})
	for _, r := range all {
		for _, path := range paths {
			eventually(t, path[1]+" answers", func() bool { status, _ := r.get(path[1]); return status == http.StatusOK })
		}
	}
	orders := 0
	take := func() {
		for i := range 10 {
			all[i%len(all)].order(t, fmt.Sprint("item ", orders))
			orders++
		}
	}
	leader := func() int {
		i := -1
		eventually(t, "a replica leads", func() bool { i = slices.IndexFunc(all, replica.leads); return i >= 0 })
		return i
	}
	take()
	eventually(t, "the orders are sent", func() bool { return got.has(orders) })

	got.is(true) // away
	take()
	i := leader()
	check(t, all[i].Process.Kill())
	_ = all[i].Wait()
	all = append(slices.Delete(all, i, i+1), start(t, program, dsn, server.URL))
	eventually(t, "the new replica is ready", func() bool { status, _ := all[2].get("/readyz"); return status == http.StatusOK })
	take()
	eventually(t, "it is tried while the receiver is away", func() bool { return got.hasAsked(3) })
	got.is(false)
	eventually(t, "the orders are sent after a kill", func() bool { return got.has(orders) })

	i = leader()
	check(t, all[i].Process.Signal(syscall.SIGTERM))
	if err := all[i].Wait(); err != nil {
		t.Errorf("the leader ended with %v", err)
	}
	all = slices.Delete(all, i, i+1)
	all[0].order(t, "refused") // and set aside later: it holds up the next ones for a while
	leader()

	pool, err := sql.Open("pgx", dsn)
	check(t, err)
	defer pool.Close()
	var reports, doubled, refused int
	eventually(t, "reports are written", func() bool {
		check(t, pool.QueryRow("SELECT count(*), count(*) - count(DISTINCT at) FROM reports WHERE orders >= 10").Scan(&reports, &doubled))
		return reports >= 3
	})
	eventually(t, "the refused order was tried", func() bool {
		check(t, pool.QueryRow("SELECT count(*) FROM outbox WHERE tries > 0").Scan(&refused))
		return refused == 1
	})
	if doubled != 0 {
		t.Errorf("%d reports are doubled", doubled)
	}
	shown, err := roster.New(pool)
	check(t, err)
	defer func() { _ = shown.Close(t.Context()) }()
	candidates, err := shown.Candidates(t.Context(), elector.KeyFromName("service"))
	check(t, err)
	states := map[roster.State]int{}
	for _, c := range candidates {
		states[c.State]++
	}
	if states[roster.Left] != 1 || states[roster.Live] < 2 {
		t.Errorf("the roster shows %v", states)
	}
	for _, r := range all {
		check(t, r.Process.Signal(syscall.SIGTERM))
		if err := r.Wait(); err != nil {
			t.Errorf("a replica ended with %v", err)
		}
		for _, line := range strings.Split(strings.TrimSpace(read(t, r.logs)), "\n") {
			if !strings.HasPrefix(line, `{"time":`) {
				t.Errorf("a line of the log is no JSON: %s", line)
			}
		}
	}
}

// The migration and the manifests say what the program says.
func TestTheFilesOfTheServiceFitTogether(t *testing.T) {
	if !strings.Contains(read(t, "migrations/1_service.sql"), examples.OutboxTable) {
		t.Error("the migration has another outbox than examples/outbox.go")
	}
	program := read(t, "main.go")
	if lines := strings.Count(program, "\n"); lines > 150 {
		t.Errorf("main.go has %d lines, want at most 150", lines)
	}
	for _, file := range []string{"compose.yaml", "kubernetes.yaml"} {
		for documents := yaml.NewDecoder(strings.NewReader(read(t, file))); ; {
			var anything map[string]any
			if err := documents.Decode(&anything); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
		}
		for _, name := range []string{"DATABASE_URL", "RECEIVER", "REPORT"} {
			if !strings.Contains(read(t, file), name) || !strings.Contains(program, `os.Getenv("`+name+`")`) {
				t.Errorf("%s or the program does not know %s", file, name)
			}
		}
	}
}
