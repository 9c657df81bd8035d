//go:build unix

package main

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"image"
	"image/color"
	imagedraw "image/draw"
	"image/png"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/pgelector/pgelector/dashboard"
	"github.com/pgelector/pgelector/e2e/browser"
	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
	"github.com/pgelector/pgelector/roster"
)

// photograph takes pictures of the dashboard in a browser, with a throw-away server. The elections
// and candidates are real. The history of the last day is inserted into the roster's table.
func photograph(ctx context.Context, dir string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	cluster, err := pgcluster.Start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	pool, err := sql.Open("pgx", cluster.DSN())
	if err != nil {
		return err
	}
	defer pool.Close()
	return stage(ctx, pool, func() error { return show(ctx, pool, dir) })
}

// show serves the page, and takes the pictures.
func show(ctx context.Context, pool *sql.DB, dir string) error {
	reading, err := roster.New(pool)
	if err != nil {
		return err
	}
	page, err := dashboard.New(pool, dashboard.WithRoster(reading), dashboard.WithElections("orders", "billing", "mail"))
	if err != nil {
		return err
	}
	server := httptest.NewServer(page)
	defer server.Close()
	return take(ctx, server.URL, dir)
}

// sights are the widths of the page, by the name of the picture.
var sights = map[string]int64{"dashboard-light": 1220, "dashboard-dark": 1220, "dashboard-phone-light": 390}

const scale = 1.5 // pixels of a picture for one of the page

func take(ctx context.Context, address, dir string) error {
	tab, stop, err := browser.Open(ctx)
	if err != nil {
		return err
	}
	defer stop()
	for name, width := range sights {
		theme := name[strings.LastIndex(name, "-")+1:]
		_, err := chromedp.Call(tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}})
		if err != nil {
			return err
		}
		err = chromedp.Do(tab, chromedp.EmulateViewport(width, 600, chromedp.EmulateScale(scale)), chromedp.Navigate(address))
		if err != nil {
			return err
		}
		picture, err := chromedp.Run(tab, chromedp.FullScreenshot(100)) // 100 is a PNG
		if err != nil {
			return err
		}
		if picture, err = shrink(picture); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// minimum is the lowest good score.
const minimum = 0.5

// stage starts candidates for "orders", of which one is unhealthy, and for "mail", and inserts the
// history. It calls ready when the page can show them, and then stops them.
func stage(ctx context.Context, pool *sql.DB, ready func() error) error {
	for i, health := range []float64{0.98, 0.91, 0.42} {
		id := fmt.Sprintf("web-%d", i+1)
		r, err := roster.New(pool, roster.WithVersion("1.4.2"),
			roster.WithMetadata(map[string]string{"address": fmt.Sprintf("10.0.4.1%d:8080", i+1), "zone": "eu-1" + string(rune('a'+i))}))
		if err != nil {
			return err
		}
		defer r.Close(context.Background())
		if err := r.Migrate(ctx); err != nil {
			return err
		}
		if i == 0 {
			if _, err := pool.ExecContext(ctx, past, int64(elector.KeyFromName("orders")), int64(elector.KeyFromName("billing"))); err != nil {
				return err
			}
		}
		elections := []string{"orders", "mail"}
		if health < minimum {
			elections = elections[:1]
		}
		for _, election := range elections {
			stop, err := stand(ctx, pool, election, id, health, r)
			if err != nil {
				return err
			}
			defer stop()
		}
		if err := published(ctx, r, id); err != nil {
			return err
		}
	}
	if _, err := pool.ExecContext(ctx, "UPDATE pgelector.roster_terms SET elected_at = now() - CASE election WHEN 'orders' THEN interval '3 h 12 min' ELSE interval '9 h' END WHERE token > 281474976710700"); err != nil {
		return err
	}
	return ready()
}

// stand starts a candidate; the first one leads.
func stand(ctx context.Context, pool *sql.DB, election, id string, health float64, r *roster.Roster) (stop func(), err error) {
	rec := hookstest.NewRecorder()
	e, err := elector.New(pool, election, elector.WithCandidateID(id), elector.WithHooks(r, rec),
		elector.WithHealth(func(context.Context) elector.HealthReport { return elector.HealthReport{Score: health} }, elector.HealthPolicy{Minimum: minimum}))
	if err != nil {
		return nil, err
	}
	if err := r.Add(e); err != nil {
		return nil, err
	}
	if err := e.Start(context.Background()); err != nil {
		return nil, err
	}
	stop = func() { _ = e.Stop(context.Background()) }
	if health >= minimum { // else it does not campaign
		_, err = hookstest.Wait[hooks.Campaign](ctx, rec, nil)
	}
	return stop, err
}

// published waits until the candidate, and its term if it leads, is in the tables.
func published(ctx context.Context, r *roster.Roster, id string) error {
	for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		all, err := r.Candidates(ctx)
		if err != nil {
			return err
		}
		for _, c := range all {
			if s := r.Stats(); c.CandidateID == id && s.Writes > 0 && s.Waiting == 0 {
				return nil
			}
		}
	}
	return errors.Join(fmt.Errorf("%s is not published", id), context.Cause(ctx))
}

// past is a day of "orders" ($1), with a deployment, a killed leader and a leader that was
// cut off; and of "billing" ($2), which has no leader.
const past = `WITH term(key, election, n, id, began, ended, reason, error) AS (VALUES
	($1::bigint, 'orders', 1, 'web-3', '23 h 50 min', '15 h 10 min', 'shutdown', 'elector: lead: context canceled'),
	($1, 'orders', 2, 'web-2', '15 h 10 min', '11 h 31 min', 'lease_expired', 'elector: the lease expired'),
	($1, 'orders', 3, 'web-1', '11 h', NULL, NULL, NULL),
	($1, 'orders', 4, 'web-2', '6 h 40 min', '3 h 12 min', 'resigned', 'elector: the term was resigned'),
	($2, 'billing', 5, 'batch-7', '20 h', '8 h 5 min', 'shutdown', 'elector: lead: context canceled'),
	($2, 'billing', 6, 'batch-8', '8 h 5 min', NULL, NULL, NULL)
), terms AS (
	INSERT INTO pgelector.roster_terms (key, token, election, candidate_id, elected_at, ended_at, reason, error)
	SELECT key, 281474976710656 + n, election, id, now() - began::interval, now() - ended::interval, reason, error FROM term
)
INSERT INTO pgelector.roster_candidates (key, candidate_id, election, version, metadata, since, health, published_at, expires_at)
SELECT $2, 'batch-8', 'billing', '0.9.0', '{"zone": "eu-1b"}', now() - interval '9 h', 0.2, now() - interval '4 min', now() - interval '3 min'`

// shrink keeps the 256 most frequent colours of a PNG. The page needs no more, and the file
// has a third of the size.
func shrink(picture []byte) ([]byte, error) {
	full, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		return nil, err
	}
	bounds, count := full.Bounds(), map[color.Color]int{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			count[full.At(x, y)]++
		}
	}
	order := slices.SortedFunc(maps.Keys(count), func(a, b color.Color) int { return cmp.Compare(count[b], count[a]) })
	small := image.NewPaletted(bounds, order[:min(len(order), 256)])
	imagedraw.Draw(small, bounds, full, bounds.Min, imagedraw.Src)
	var text bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	err = encoder.Encode(&text, small)
	return text.Bytes(), err
}
