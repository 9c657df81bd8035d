package pooled

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestAPoolIsForgottenWhenTheLastWhoWaitsGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all Queues
		_, leave, err := all.Take(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		hurried, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := all.Take(hurried, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if leave(); len(all.of) > 0 {
			t.Error("the pool is remembered")
		}
	})
}
