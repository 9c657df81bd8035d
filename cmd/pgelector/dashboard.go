package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/ask"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/exit"
	"github.com/pgelector/pgelector/dashboard"
	"github.com/pgelector/pgelector/roster"
	"github.com/pgelector/pgelector/shard"
)

func (a *app) dashboardCommand() *cobra.Command {
	var listen, group, schema string
	var shards int
	cmd := &cobra.Command{
		Use:   "dashboard [NAME…]",
		Short: "Serve a page about the elections of the database",
		Long: "Serves a page that shows who leads and who is the deputy, with a roster the other candidates\n" +
			"too, until it is interrupted. Without names it shows all elections: by the names of a roster (in the schema pgelector, or\n" +
			"--roster), else by key. The page has no login: whoever can reach the address can read it. On a\n" +
			"loopback address it answers only requests to an IP address or to localhost, so that no web page can read it through a browser.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkNames(args...); err != nil {
				return err
			}
			if (group == "") != (shards == 0) || shards < 0 {
				return exit.Usagef("dashboard: --group and --shards N go together")
			}
			if group != "" {
				if err := exit.CheckShards(group, shards); err != nil {
					return err
				}
			}
			if _, _, err := net.SplitHostPort(listen); err != nil {
				return exit.Usagef("--listen %q: want an address with a port, such as :8080 or 127.0.0.1:8080", listen)
			}
			pool, _, err := a.connection.open(cmd)
			if err != nil {
				return err
			}
			opts := []dashboard.Option{dashboard.WithElections(args...)}
			if schema == "" && a.hasRoster(cmd.Context(), pool) {
				schema = defaultRoster
			}
			if schema != "" {
				published, err := roster.New(pool, roster.WithSchema(schema))
				if err != nil {
					return exit.Usagef("--roster: %v", err)
				}
				opts = append(opts, dashboard.WithRoster(published))
			}
			if group != "" {
				opts = append(opts, dashboard.WithShards(group, shard.Numbers(shards).Names()...))
			}
			page, err := dashboard.New(pool, opts...)
			if err != nil {
				return exit.With(exit.Usage, err)
			}
			listener, err := net.Listen("tcp", listen)
			if err != nil {
				return fmt.Errorf("--listen %s: %w", listen, err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "http://%s/\n", listener.Addr())
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			server := &http.Server{Handler: localOnly(listener.Addr(), page), ReadTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute}
			defer context.AfterFunc(ctx, func() { _ = server.Close() })()
			if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return context.Cause(ctx)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8080", "the address to serve the page at")
	cmd.Flags().StringVar(&schema, "roster", "", "show the candidates and terms of the roster in this schema, such as pgelector")
	cmd.Flags().StringVar(&group, "group", "", "show a group of shards in one section")
	cmd.Flags().IntVar(&shards, "shards", 0, "with --group: the number of its shards, 1 to 10000")
	a.connection.addTimeout(cmd)
	return cmd
}

// defaultRoster is the schema of a roster, unless another was chosen.
const defaultRoster = "pgelector"

// hasRoster reports whether this role may read a roster in its default schema.
func (a *app) hasRoster(ctx context.Context, pool *sql.DB) bool {
	ctx, cancel := context.WithTimeout(ctx, a.connection.timeout)
	defer cancel()
	published, err := roster.New(pool, roster.WithSchema(defaultRoster))
	if err == nil {
		_, err = ask.Await(ctx, func(ctx context.Context) ([]roster.Candidate, error) { return published.Candidates(ctx, 0) })
	}
	return err == nil
}

// localOnly refuses requests to a loopback address that name another host. A page of a stranger whose name
// is made to lead to this machine (DNS rebinding) could have the browser read them. Addresses are no names, and
// what sends no name is no browser.
func localOnly(addr net.Addr, page http.Handler) http.Handler {
	if tcp, ok := addr.(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		return page
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
		_, err := netip.ParseAddr(host)
		if err != nil && host != "" && host != "localhost" && !strings.HasSuffix(host, ".localhost") {
			http.Error(w, "this page is for this machine: ask for it as localhost, or have the proxy send the header \"Host: localhost\"", http.StatusForbidden)
			return
		}
		page.ServeHTTP(w, r)
	})
}
