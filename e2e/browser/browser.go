// Package browser drives a headless Chromium, for tests of web pages and for screenshots.
package browser

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/chromedp/chromedp"
)

// ErrNone is returned when no browser is installed.
var ErrNone = errors.New("browser: no Chromium is installed (Debian and Ubuntu, as root: apt-get install chromium; " +
	"or let PGELECTOR_BROWSER name its program)")

// names are the program's names on different systems.
var names = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable",
	"/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"}

// Find returns the path of the browser: the program that PGELECTOR_BROWSER names, or else the
// first that is installed.
func Find() (string, error) {
	if path := os.Getenv("PGELECTOR_BROWSER"); path != "" {
		return path, nil
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrNone
}

// Open starts a browser with a temporary profile. tab is for chromedp.Run; it ends with ctx.
// The caller must call stop.
func Open(ctx context.Context) (tab context.Context, stop func(), err error) {
	path, err := Find()
	if err != nil {
		return nil, nil, err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.Flag("disable-component-update", true), // no network requests of its own
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("no-pings", true),
		chromedp.Flag("hide-scrollbars", true))
	if os.Geteuid() == 0 { // Chromium's sandbox does not work for root
		options = append(options, chromedp.NoSandbox)
	}
	ctx, stopBrowser := chromedp.NewExecAllocator(ctx, options...)
	tab, closeTab := chromedp.NewContext(ctx)
	stop = func() {
		_ = chromedp.Cancel(tab) // waits until the browser has ended
		closeTab()
		stopBrowser()
	}
	if err := chromedp.Do(tab); err != nil {
		stop()
		return nil, nil, fmt.Errorf("browser: start %s: %w", path, err)
	}
	return tab, stop, nil
}
