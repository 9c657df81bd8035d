package dashboard

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/DATA-DOG/go-sqlmock"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/roster"
)

func TestAGroupOfShardsIsOneSection(t *testing.T) {
	var names []string
	f := facts{at: noon}
	lock := func(election string, pid int32) {
		f.locks = append(f.locks, db.AdvisoryLocksRow{Key: elector.KeyFromName(election), Granted: true, Pid: pid, ApplicationName: fmt.Sprint("web-", pid)})
		f.candidates = append(f.candidates, roster.Candidate{Election: election, Key: elector.KeyFromName(election), ID: fmt.Sprint("web-", pid), State: roster.Live})
	}
	for i := range 1000 {
		names = append(names, fmt.Sprint(i))
		lock(fmt.Sprintf("billing/%d", i), int32(1+i%2))
	}
	lock("billing#17", 1)
	lock("billing#99", 3) // it has no shard yet
	lock("orders", 4)
	f.locks = f.locks[1:]
	body := get(pageOf(t, f, nil, WithShards("billing", names...)), http.MethodGet, "/").Body.String()
	for _, want := range []string{"999 of 1000 shards led", "by 2 members", `web-1</th><td data-label="Shards">499<`, `web-2</th><td data-label="Shards">500<`, `web-3</th><td data-label="Shards">0<`, "led by web-4"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page does not show %q", want)
		}
	}
	if n, rows := strings.Count(body, "<section"), strings.Count(body, `<a href="#`); n != 2 || rows != 2 {
		t.Errorf("%d sections and %d rows of the overview", n, rows)
	}
	if strings.Contains(body, "billing/") || strings.Contains(body, "billing#") {
		t.Error("the page shows an election of the group")
	}
	pool, _, _ := sqlmock.New()
	defer pool.Close()
	if _, err := New(pool, WithShards("billing")); !errors.Is(err, ErrConfig) {
		t.Errorf("a group without shards: %v", err)
	}
}
