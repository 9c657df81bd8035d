package session

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// checks lets n candidates of a pool check the server at the same time. A check takes a second.
// It counts the checks that were made and those that failed.
func checks(n int, check func() (bool, error), leases ...Lease) (made, failed int) {
	all := queues{of: map[*sql.DB]*queue{}}
	ended := make(chan error)
	for i := range n {
		go func() {
			_, err := all.share(context.Background(), nil, leases[i%len(leases)], func() (bool, bool, error) {
				made++ // one at a time
				time.Sleep(time.Second)
				whole, err := check()
				return false, whole, err
			})
			ended <- err
		}()
	}
	for range n {
		if err := <-ended; err != nil {
			failed++
		}
	}
	if len(all.of) > 0 {
		failed = -1
	}
	return made, failed
}

func TestCandidatesThatWaitForTheirTurnShareACheckThatPassedMeanwhile(t *testing.T) {
	lease := Lease{Length: 10 * time.Second}
	for name, c := range map[string]struct {
		whole        bool
		err          error
		made, failed int
	}{
		"it passed":                   {true, nil, 2, 0}, // the first made one, and one of those that came after it had begun made the other
		"it failed":                   {true, errors.New("refused"), 40, 40},
		"it passed without a setting": {false, nil, 40, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				made, failed := checks(40, func() (bool, error) { return c.whole, c.err }, lease)
				if made != c.made || failed != c.failed {
					t.Errorf("%d checks and %d failures, want %d and %d", made, failed, c.made, c.failed)
				}
			})
		})
	}
}

// A candidate that comes after the first has left waits for the second.
func TestThereIsOneQueueWhileAnybodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := queues{of: map[*sql.DB]*queue{}}
		ended := make(chan error)
		checking := 0
		for i := range 3 {
			go func() {
				time.Sleep(time.Duration(i) * 700 * time.Millisecond)
				_, err := all.share(context.Background(), nil, Lease{}, func() (bool, bool, error) {
					if checking++; checking > 1 {
						t.Errorf("%d checks at a time", checking)
					}
					time.Sleep(time.Second)
					checking--
					return false, false, nil
				})
				ended <- err
			}()
		}
		for range 3 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestACheckWithAnotherLeaseIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made, _ := checks(40, func() (bool, error) { return true, nil }, Lease{Length: 10 * time.Second}, Lease{Length: 20 * time.Second})
		if made < 3 { // the number depends on the order in which candidates come
			t.Errorf("%d checks, with two leases", made)
		}
	})
}

func TestACheckThatBeganBeforeIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := queues{of: map[*sql.DB]*queue{}}
		made := 0
		for range 3 {
			_, err := all.share(t.Context(), nil, Lease{}, func() (bool, bool, error) {
				made++
				time.Sleep(time.Second)
				return false, true, nil
			})
			if err != nil {
				t.Error(err)
			}
		}
		if made != 3 {
			t.Errorf("%d of 3 checks were made", made)
		}
	})
}
