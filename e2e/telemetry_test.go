//go:build unix

package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	otelhooks "github.com/pgelector/pgelector/hooks/otel"
	prometheushooks "github.com/pgelector/pgelector/hooks/prometheus"
)

// prometheusServer is a Prometheus that the test starts.
type prometheusServer struct {
	address string
	client  http.Client
}

// scrapedBy starts a Prometheus that scrapes the targets and evaluates the alerts.
func scrapedBy(t *testing.T, targets ...*target) *prometheusServer {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("prometheus is not installed (Debian: apt-get install prometheus)")
	}
	var all []string
	for _, g := range targets {
		all = append(all, g.server.Listener.Addr().String())
	}
	dir := t.TempDir()
	config, err := json.Marshal(map[string]any{ // which is YAML too
		"global":         map[string]any{"scrape_interval": "200ms", "scrape_timeout": "200ms", "evaluation_interval": "200ms"},
		"rule_files":     []string{filepath.Join(dir, "alerts.yaml")},
		"scrape_configs": []any{map[string]any{"job_name": "pgelector", "static_configs": []any{map[string]any{"targets": all}}}},
	})
	check(t, err)
	check(t, os.WriteFile(filepath.Join(dir, "prometheus.yaml"), config, 0o600))
	check(t, os.WriteFile(filepath.Join(dir, "alerts.yaml"), []byte(prometheushooks.Alerts), 0o600))
	p := launchPrometheus(t, program, dir)
	eventually(t, "Prometheus has scraped all targets", func() bool {
		up, err := p.query("sum(up)")
		return err == nil && len(up) == 1 && up[0] == fmt.Sprint(len(targets))
	})
	return p
}

// launchPrometheus tries several ports: another process can take a free port before its use.
func launchPrometheus(t *testing.T, program, dir string) *prometheusServer {
	t.Helper()
	for range 5 {
		free, err := net.Listen("tcp", "127.0.0.1:0")
		check(t, err)
		p := &prometheusServer{address: free.Addr().String(), client: http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}}
		check(t, free.Close())
		var log bytes.Buffer
		cmd := exec.Command(program, "--config.file="+filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
			"--web.listen-address="+p.address)
		cmd.Stdout, cmd.Stderr = &log, &log
		check(t, cmd.Start())
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_ = cmd.Wait()
		}()
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			<-gone
			if t.Failed() {
				t.Log(log.String())
			}
		})
		ready, ended := false, false
		eventually(t, "Prometheus is ready, or has ended", func() bool {
			select {
			case <-gone:
				ended = true
			default:
				_, err := p.query("vector(1)")
				ready = err == nil
			}
			return ready || ended
		})
		if ready {
			return p
		}
	}
	t.Fatal("Prometheus does not start")
	return nil
}

// query returns the values of a query's series.
func (p *prometheusServer) query(query string) (values []string, err error) {
	var answer struct {
		Status, Error string
		Data          struct {
			Result []struct{ Value [2]any }
		}
	}
	if err := p.get("/api/v1/query?query="+url.QueryEscape(query), &answer); err != nil {
		return nil, err
	}
	if answer.Status != "success" {
		return nil, fmt.Errorf("%s: %s", query, answer.Error)
	}
	for _, series := range answer.Data.Result {
		values = append(values, fmt.Sprint(series.Value[1]))
	}
	return values, nil
}

func (p *prometheusServer) get(path string, answer any) error {
	response, err := p.client.Get("http://" + p.address + path)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return json.NewDecoder(response.Body).Decode(answer)
}

func TestPrometheusEvaluatesTheDashboardAndTheAlerts(t *testing.T) {
	t.Parallel()
	s := onShared(t)
	election := s.election(t)
	first, a := s.standScraped(t, mixed, 0, election)
	second, b := s.standScraped(t, mixed, 1, election)
	a.hook.Ticks("nightly", "done", 1) // as a schedule does
	p := scrapedBy(t, a, b)
	old := first.run(t, nil).elected(t)
	second.run(t, nil).follows(t)
	showsOne := func() bool {
		leaders, err := p.query(fmt.Sprintf("sum(pgelector_leader{election=%q})", election))
		return err == nil && len(leaders) == 1 && leaders[0] == "1"
	}
	eventually(t, "Prometheus shows one leader", showsOne)
	s.terminate(t, s.holders(t, first.Key())[0])
	wait[hooks.Demoted](t, first, nil)
	firstLeader(t, []*candidate{first, second}, old.Token)
	eventually(t, "Prometheus shows one leader again", showsOne)

	var dashboard struct {
		Panels      []struct{ Targets []struct{ Expr string } }
		Annotations struct{ List []struct{ Expr string } }
	}
	check(t, json.Unmarshal([]byte(prometheushooks.Dashboard), &dashboard))
	var queries []string
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			queries = append(queries, target.Expr)
		}
	}
	for _, annotation := range dashboard.Annotations.List {
		queries = append(queries, annotation.Expr)
	}
	variables := strings.NewReplacer("$__rate_interval", "1m", "$__interval", "1m", "$__range", "1h", "$election", ".*")
	for _, query := range queries {
		eventually(t, "the dashboard shows "+query, func() bool {
			values, err := p.query(variables.Replace(query))
			return err == nil && len(values) > 0
		})
	}
	eventually(t, "every alert was evaluated", func() bool { return p.evaluated(t) == strings.Count(prometheushooks.Alerts, "- alert:") })
}

// evaluated returns how many alerts were evaluated, and fails the test if one failed.
func (p *prometheusServer) evaluated(t *testing.T) (n int) {
	t.Helper()
	var answer struct {
		Data struct {
			Groups []struct {
				Rules []struct {
					Name, Health, LastError string
					LastEvaluation          time.Time
				}
			}
		}
	}
	check(t, p.get("/api/v1/rules?type=alert", &answer))
	for _, group := range answer.Data.Groups {
		for _, rule := range group.Rules {
			if rule.LastError != "" {
				t.Errorf("%s: %s", rule.Name, rule.LastError)
			}
			if rule.Health == "ok" && !rule.LastEvaluation.IsZero() {
				n++
			}
		}
	}
	return n
}

// traced is a candidate with OpenTelemetry's SDK and an exporter into memory.
type traced struct {
	*candidate
	hook     *otelhooks.Hook
	tracers  *sdktrace.TracerProvider
	exporter *tracetest.InMemoryExporter
}

func (s *server) standTraced(t *testing.T, d drivers, i int, election string) traced {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	hook, err := otelhooks.New(nil, tracers)
	check(t, err)
	return traced{s.stand(t, d.open(t, i, s.DSN()), election, elector.WithHooks(hook)), hook, tracers, exporter}
}

// work makes a span in each term, linked to it.
func (c traced) work(ctx context.Context, term *elector.Term) error {
	ctx = c.hook.WithTerm(ctx, c.Election(), term.Token())
	ctx, span := c.tracers.Tracer("work").Start(ctx, "work", otelhooks.Link(ctx))
	span.End()
	<-ctx.Done()
	return nil
}

// spans returns the spans with the name, in order of their end.
func (c traced) spans(name string) (all []tracetest.SpanStub) {
	for _, span := range c.exporter.GetSpans() {
		if span.Name == name {
			all = append(all, span)
		}
	}
	return all
}

// worked waits until the work of n terms has begun: a term that ends earlier has none.
func (c traced) worked(t *testing.T, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("the work of %d terms begins", n), func() bool { return len(c.spans("work")) >= n })
}

func TestEachTermIsATraceToWhichTheWorkLinks(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		c := s.standTraced(t, d, 0, s.election(t))
		c.run(t, c.work)
		c.elected(t)
		c.worked(t, 1)
		after := c.after()
		s.terminate(t, s.holders(t, c.Key())[0])
		next[hooks.Elected](t, after, nil)
		c.worked(t, 2)
		c.end(t)

		campaigns, terms, works := c.spans("pgelector.campaign"), c.spans("pgelector.term"), c.spans("work")
		if len(campaigns) != 2 || len(terms) != 2 || len(works) != 2 {
			t.Fatalf("%d campaigns, %d terms, %d works; want 2 of each", len(campaigns), len(terms), len(works))
		}
		for i, term := range terms {
			if !links(term, campaigns[i]) || !links(works[i], term) {
				t.Errorf("term %d: no link to its campaign, or from its work", i)
			}
		}
		if terms[0].Status.Code != codes.Error || terms[1].Status.Code != codes.Unset {
			t.Errorf("the lost term is %v, the one given up %v", terms[0].Status, terms[1].Status)
		}
	})
}

func links(from, to tracetest.SpanStub) bool {
	for _, link := range from.Links {
		if link.SpanContext.Equal(to.SpanContext) {
			return true
		}
	}
	return false
}
