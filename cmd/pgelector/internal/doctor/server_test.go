package doctor

import (
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/connect"
)

// poolerThat is a pooler that answers questions with the backend 2, and the n-th BEGIN, from 0, with
// states[n]: "" ends the connection without a word, "ok" begins.
func poolerThat(t *testing.T, states ...string) (dsn string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	var begun atomic.Int32
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				answer(pgproto3.NewBackend(conn, conn), func() string { return states[begun.Add(1)-1] })
			}()
		}
	}()
	return "postgres://app@" + listener.Addr().String() + "/shop?sslmode=disable"
}

func answer(client *pgproto3.Backend, begin func() string) {
	send := func(messages ...pgproto3.BackendMessage) error {
		for _, m := range messages {
			client.Send(m)
		}
		return client.Flush()
	}
	if _, err := client.ReceiveStartupMessage(); err != nil {
		return
	}
	ready := &pgproto3.ReadyForQuery{TxStatus: 'I'}
	err := send(&pgproto3.AuthenticationOk{}, &pgproto3.ParameterStatus{Name: "standard_conforming_strings", Value: "on"},
		&pgproto3.ParameterStatus{Name: "client_encoding", Value: "UTF8"}, &pgproto3.BackendKeyData{ProcessID: 1, SecretKey: make([]byte, 4)}, ready)
	for err == nil {
		var message pgproto3.FrontendMessage
		if message, err = client.Receive(); err != nil {
			return
		}
		switch query, ok := message.(*pgproto3.Query); {
		case !ok:
			return
		case strings.HasPrefix(query.String, "SELECT"):
			err = send(&pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{Name: []byte("pid"), DataTypeOID: 23, DataTypeSize: 4}}},
				&pgproto3.DataRow{Values: [][]byte{[]byte("2")}}, &pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")}, ready)
		case query.String != "BEGIN":
			err = send(&pgproto3.CommandComplete{CommandTag: []byte(query.String)}, ready)
		default:
			switch state := begin(); state {
			case "":
				return
			case "ok":
				err = send(&pgproto3.CommandComplete{CommandTag: []byte("BEGIN")}, &pgproto3.ReadyForQuery{TxStatus: 'T'})
			default:
				_ = send(&pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: state, Message: "refused"})
				return
			}
		}
	}
}

// A pooler that is full ends a connection with 08P01, too.
func TestAPoolerIsInStatementModeOnlyIfItRefusesTransactionsAgain(t *testing.T) {
	for name, c := range map[string]struct {
		states []string
		mode   string // "" is an error
	}{
		"statement mode":            {[]string{"08P01", "08P01"}, "statement"},
		"full":                      {[]string{"53300"}, ""},
		"cut":                       {[]string{""}, ""},
		"full, then free":           {[]string{"08P01", "ok"}, ""},
		"full, then cut":            {[]string{"08P01", ""}, ""},
		"it begins, on one backend": {[]string{"ok", "ok"}, "transaction"},
	} {
		t.Run(name, func(t *testing.T) {
			target, err := connect.Find(poolerThat(t, c.states...), connect.PGX, "me")
			if err != nil {
				t.Fatal(err)
			}
			x := &Examination{Target: target, Out: io.Discard, Timeout: time.Minute}
			err = x.pooler(t.Context())
			switch {
			case c.mode == "" && (err == nil || len(x.found) > 0):
				t.Errorf("found %v, error %v, want an error only", x.found, err)
			case c.mode != "" && (err != nil || len(x.found) != 1 || !strings.Contains(x.found[0].Text, "in "+c.mode+" mode")):
				t.Errorf("found %v, error %v, want %s mode", x.found, err, c.mode)
			}
		})
	}
}
