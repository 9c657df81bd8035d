package hookstest_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
)

func TestViolationsOfTheContractAreNamed(t *testing.T) {
	for name, tt := range map[string]struct {
		calls func(*hookstest.Recorder)
		want  []string
	}{
		"terms that follow one another": {
			func(r *hookstest.Recorder) {
				elected(r, a, 1)
				demoted(r, a, 1)
				elected(r, b, 2)
				demoted(r, b, 2)
				elected(r, a, 3)
			}, nil},
		"a late report of an older term": {
			func(r *hookstest.Recorder) { elected(r, b, 2); elected(r, a, 1); demoted(r, a, 1) }, nil},
		"the same token in another election": {
			func(r *hookstest.Recorder) { elected(r, a, 1); elected(r, hooks.Origin{Election: "mail"}, 1) }, nil},
		"elected twice": {
			func(r *hookstest.Recorder) { elected(r, a, 1); elected(r, a, 2) },
			[]string{"orders/a: Elected with token 2 during the term with token 1"}},
		"demoted first": {
			func(r *hookstest.Recorder) { demoted(r, a, 1) },
			[]string{"orders/a: Demoted with token 1 without a term"}},
		"demoted twice": {
			func(r *hookstest.Recorder) { elected(r, a, 1); demoted(r, a, 1); demoted(r, a, 1) },
			[]string{"orders/a: Demoted with token 1 without a term"}},
		"demoted from another term": {
			func(r *hookstest.Recorder) { elected(r, a, 2); demoted(r, a, 1) },
			[]string{"orders/a: Demoted with token 1 from the term with token 2"}},
		"a token that falls": {
			func(r *hookstest.Recorder) { elected(r, a, 2); demoted(r, a, 2); elected(r, a, 1) },
			[]string{"orders/a: token 1 does not rise above 2"}},
		"a token that stays": {
			func(r *hookstest.Recorder) { elected(r, a, 0); demoted(r, a, 0); elected(r, a, 0) },
			[]string{"orders/a: token 0 does not rise above 0"}},
		"a token of two candidates": {
			func(r *hookstest.Recorder) { elected(r, a, 1); demoted(r, a, 1); elected(r, b, 1) },
			[]string{"orders/b: token 1 already belonged to orders/a"}},
	} {
		r := hookstest.NewRecorder()
		tt.calls(r)
		if got := r.Violations(); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

// blocking returns a recorder whose OnElected runs until the returned function is called.
func blocking() (r *hookstest.Recorder, release func()) {
	gate := make(chan struct{})
	r = hookstest.NewRecorder(hooks.Funcs{Elected: func(context.Context, hooks.Elected) { <-gate }})
	return r, func() { close(gate) }
}

func TestACallWhileAnotherOfTheSameCandidateRunsIsAViolation(t *testing.T) {
	r, release := blocking()
	var running sync.WaitGroup
	running.Go(func() { elected(r, a, 1) })
	if _, err := hookstest.Wait[hooks.Elected](ctx, r, nil); err != nil {
		t.Fatal(err)
	}
	r.OnError(ctx, hooks.Failure{Origin: a, Op: hooks.OpWork}) // OnError may be called at any time
	busy(r, a)
	release()
	running.Wait()
	demoted(r, a, 1)
	if got, want := r.Violations(), []string{"orders/a: OnCampaign called before OnElected returned"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCandidatesMayCallAtTheSameTime(t *testing.T) {
	r, release := blocking()
	var running sync.WaitGroup
	running.Go(func() { elected(r, a, 1) })
	if _, err := hookstest.Wait[hooks.Elected](ctx, r, nil); err != nil {
		t.Fatal(err)
	}
	busy(r, b)
	release()
	running.Wait()
	if got := r.Violations(); len(got) > 0 {
		t.Errorf("got %q", got)
	}
}

func TestACallThatPanicsHasEnded(t *testing.T) {
	r := hookstest.NewRecorder(hooks.Funcs{Elected: func(context.Context, hooks.Elected) { panic("oops") }})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic did not reach the elector")
			}
		}()
		elected(r, a, 1)
	}()
	r.OnError(ctx, hooks.Failure{Origin: a, Op: hooks.OpHook})
	if got := r.Violations(); len(got) > 0 {
		t.Errorf("got %q", got)
	}
}
