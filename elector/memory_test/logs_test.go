package memory_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	sloghooks "github.com/pgelector/pgelector/hooks/slog"
)

// A logbook keeps what is logged at level info and above.
type logbook struct {
	slog.Handler
	mu      sync.Mutex
	records []slog.Record
}

func newLogbook() *logbook { return &logbook{Handler: slog.DiscardHandler} }

func (l *logbook) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (l *logbook) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, r)
	return nil
}

// faults returns the records above info. No record at info has an error, and no error two lines.
func (l *logbook) faults(b *bench) (all []slog.Record) {
	b.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.records {
		if r.Level > slog.LevelInfo {
			all = append(all, r)
		}
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "error" && (r.Level == slog.LevelInfo || strings.Contains(a.Value.String(), "\n")) {
				b.Errorf("%v %s: error=%v", r.Level, r.Message, a.Value)
			}
			return true
		})
	}
	return all
}

func TestOneFaultOfALeaderIsOneWarningOrErrorInItsLog(t *testing.T) {
	for name, c := range map[string]struct {
		hook    hooks.Hook
		check   func(context.Context) elector.HealthReport
		happens func(b *bench, one *candidate)
		level   slog.Level
		message string
		stack   bool
	}{
		"its session ends":        {happens: func(b *bench, one *candidate) { b.Terminate(b.pid(one)) }, level: slog.LevelWarn, message: "demoted"},
		"it is frozen":            {happens: func(_ *bench, one *candidate) { one.process.Freeze(); time.Sleep(lease); one.process.Thaw() }, level: slog.LevelWarn, message: "demoted"},
		"its hook panics":         {hook: hooks.Funcs{Elected: func(context.Context, hooks.Elected) { panic("one\ntwo") }}, level: slog.LevelError, message: "hook panicked", stack: true},
		"its health check panics": {check: onceGood(func() float64 { panic("one\ntwo") }), level: slog.LevelWarn, message: "candidate unhealthy", stack: true},
		"its health check is bad": {check: onceGood(func() float64 { return 0.1 }), level: slog.LevelWarn, message: "candidate unhealthy"},
	} {
		scene(t, name, func(b *bench) {
			log := newLogbook()
			opts := []elector.Option{elector.WithHooks(sloghooks.New(slog.New(log)))}
			if c.hook != nil {
				opts = append(opts, elector.WithHooks(c.hook))
			}
			if c.check != nil {
				opts = append(opts, elector.WithHealth(c.check, elector.HealthPolicy{}))
			}
			one := b.candidate("one", opts...)
			ctx, stop := context.WithTimeout(always, 2*lease)
			defer stop()
			if c.hook != nil { // which ends each term
				_, err := one.TryRun(ctx, nil)
				b.wraps(err, elector.ErrLeadFailed)
			} else {
				if c.happens != nil {
					time.AfterFunc(heartbeat, func() { c.happens(b, one) })
				}
				b.wraps(one.Run(ctx, nil), context.DeadlineExceeded)
			}
			faults := log.faults(b)
			if len(faults) != 1 || faults[0].Message != c.message || faults[0].Level != c.level {
				b.Fatalf("logged %v", faults)
			}
			stack := ""
			faults[0].Attrs(func(a slog.Attr) bool {
				if a.Key == "stack" {
					stack = a.Value.String()
				}
				return true
			})
			if strings.Contains(stack, "goroutine ") != c.stack {
				b.Errorf("the stack is %q", stack)
			}
		})
	}
}

// onceGood is a health check that is good for a while.
func onceGood(then func() float64) func(context.Context) elector.HealthReport {
	began := time.Time{}
	return func(context.Context) elector.HealthReport {
		if began.IsZero() {
			began = time.Now()
		}
		if time.Since(began) < 3*time.Second {
			return elector.HealthReport{Score: 1}
		}
		return elector.HealthReport{Score: then()}
	}
}

// It is told by the first attempt after it, once.
func TestALeaderThatBecomesUnhealthyIsOneLineAndItsRecoveryAnother(t *testing.T) {
	bubble(t, func(b *bench) {
		log, v := newLogbook(), &vitals{}
		one := b.candidate("one", v.option(), elector.WithHooks(sloghooks.New(slog.New(log))))
		v.turn(4500 * time.Millisecond) // so it is unhealthy from the second 7, and healthy from 17
		v.turn(14500 * time.Millisecond)
		ctx, stop := context.WithTimeout(always, time.Minute)
		defer stop()
		b.wraps(one.Run(ctx, nil), context.DeadlineExceeded)
		var lines []string
		for _, r := range log.records {
			line := r.Message
			r.Attrs(func(a slog.Attr) bool {
				if a.Key == "after" {
					line += " after " + a.Value.String()
				}
				return true
			})
			lines = append(lines, line)
		}
		if want := []string{"elected", "candidate unhealthy", "demoted", "candidate healthy again after 10s", "elected again", "resigned"}; !slices.Equal(lines, want) || len(log.faults(b)) != 1 {
			b.Errorf("logged %q", lines)
		}
	})
}

func TestALeadThatReturnsEndsRunInTheLog(t *testing.T) {
	bubble(t, func(b *bench) {
		log := newLogbook()
		one := b.candidate("one", elector.WithHooks(sloghooks.New(slog.New(log))))
		b.check(one.Run(always, func(context.Context, *elector.Term) error { return nil }))
		if last := log.records[len(log.records)-1]; last.Message != "lead returned: Run ends" || len(log.faults(b)) > 0 {
			b.Errorf("the last line is %v", last)
		}
	})
}
