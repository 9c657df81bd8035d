//go:build unix

// Command screenshots takes the pictures of the dashboard, in a real browser and
// of a throw-away server: `make screenshots`. Elections and candidates are real;
// the history of the last day is written into the roster's table.
package main

import (
	"context"
	"database/sql"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/pgelector/pgelector/dashboard"
	"github.com/pgelector/pgelector/e2e/browser"
	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/e2e/producer"
	"github.com/pgelector/pgelector/roster"
)

func main() { producer.Main("screenshots", "DIRECTORY", take) }

func take(ctx context.Context, dir string) (err error) {
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
	leave, err := stage(ctx, pool)
	if err != nil {
		return err
	}
	defer leave()

	reading, err := roster.New(pool)
	if err != nil {
		return err
	}
	page, err := dashboard.New(pool, dashboard.WithRoster(reading), dashboard.WithElections("orders", "billing"))
	if err != nil {
		return err
	}
	server := httptest.NewServer(page)
	defer server.Close()
	return photograph(ctx, server.URL, dir)
}

// sights are the pictures, by the end of their names.
var sights = map[string]struct {
	width int64
	scale float64
}{"": {880, 1.5}, "-phone": {390, 1.5}}

func photograph(ctx context.Context, address, dir string) error {
	tab, stop, err := browser.Open(ctx)
	if err != nil {
		return err
	}
	defer stop()
	for name, sight := range sights {
		for _, theme := range []string{"light", "dark"} {
			_, err := chromedp.Call(tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}})
			if err != nil {
				return err
			}
			err = chromedp.Do(tab, chromedp.EmulateViewport(sight.width, 600, chromedp.EmulateScale(sight.scale)), chromedp.Navigate(address))
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
			if err := os.WriteFile(filepath.Join(dir, "dashboard"+name+"-"+theme+".png"), picture, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}
