//go:build linux

package main

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func names(all []fault) (names []string) {
	for _, f := range all {
		names = append(names, f.name)
	}
	return names
}

func draws(seed uint64, n int) []string {
	nemesis := newNemesis(newFleet(nil, 0, nil), nil, seed, faults())
	var drawn []fault
	for range n {
		drawn = append(drawn, nemesis.draw())
	}
	return names(drawn)
}

func TestDrawReturnsEachFaultOnceBeforeRepeating(t *testing.T) {
	all := len(faults())
	drawn := draws(7, 2*all)
	for _, round := range [][]string{drawn[:all], drawn[all:]} {
		slices.Sort(round)
		if got := len(slices.Compact(round)); got != all {
			t.Errorf("%d kinds of %d were drawn", got, all)
		}
	}
}

func TestTheSameSeedDrawsTheSameFaults(t *testing.T) {
	if first, again := draws(7, 100), draws(7, 100); !slices.Equal(first, again) {
		t.Errorf("drawn %q, and then %q", first, again)
	}
	if slices.Equal(draws(7, 100), draws(8, 100)) {
		t.Error("another seed draws the same")
	}
}

func TestChooseReportsTheFaultsItLeavesOut(t *testing.T) {
	var said strings.Builder
	chosen, err := choose("", errors.New("not root"), false, &said)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults() {
		lacks := f.own || f.pooler
		if slices.Contains(names(chosen), f.name) == lacks || strings.Contains(said.String(), "LEFT OUT: "+f.name+": ") != lacks {
			t.Errorf("%s: chosen or reported wrongly: %q", f.name, said.String())
		}
	}
}

func TestChooseReturnsOnlyTheNamedFaults(t *testing.T) {
	chosen, err := choose("freeze,kill", nil, true, io.Discard)
	if got := names(chosen); err != nil || !slices.Equal(got, []string{"kill", "freeze"}) {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := choose("earthquake", nil, true, io.Discard); err == nil {
		t.Error("an earthquake was chosen")
	}
}
