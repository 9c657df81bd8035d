//go:build unix

package dashboard_test

import (
	"context"
	"database/sql"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/pgelector/pgelector/dashboard"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/shard"
)

func TestInABrowserThePageShowsAGroupOfShardsInOneSection(t *testing.T) {
	pool, err := sql.Open("pgx", shared.Get(t).DSN())
	check(t, err)
	defer pool.Close()
	ctx, stop := context.WithCancel(t.Context())
	all := shard.Numbers(1000)
	done := make(chan error, 2)
	for _, id := range []string{hostile, "web-2"} {
		go func() {
			done <- shard.Run(ctx, pool, t.Name(), all, func(ctx context.Context, _ string, _ *elector.Term) error {
				<-ctx.Done()
				return nil
			}, shard.WithSession(elector.WithCandidateID(id)))
		}()
	}
	defer func() {
		stop()
		<-done
		<-done
	}()
	page, err := dashboard.New(pool, dashboard.WithShards(t.Name(), all.Names()...))
	check(t, err)
	server := httptest.NewServer(page)
	defer server.Close()
	tab := open(t)
	eventually(t, "the page shows the spread", func() bool {
		check(t, chromedp.Do(tab, chromedp.Navigate(server.URL+"?refresh=off")))
		shown := strings.Join(strings.Fields(evaluate[string](t, tab, `document.getElementById("g1").parentElement.innerText`)), " ")
		return strings.Contains(shown, "all 1000 shards led by 2 members") && strings.Contains(shown, hostile+" 500") && strings.Contains(shown, "web-2 500")
	})
	if rows := evaluate[int](t, tab, `document.querySelector("table").tBodies[0].rows.length`); rows != 1 {
		t.Errorf("the group is %d rows of the overview", rows)
	}
	if text := evaluate[string](t, tab, `document.body.innerText`); strings.Contains(text, "more") || strings.Contains(text, "Other advisory locks") {
		t.Errorf("the page shows the locks of the group one by one:\n%s", text)
	}
	if title := evaluate[string](t, tab, `document.title`); title != "Elections" {
		t.Errorf("the title is %q", title)
	}
}
