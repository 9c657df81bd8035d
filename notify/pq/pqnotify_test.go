package pqnotify_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	pqnotify "github.com/pgelector/pgelector/notify/pq"
)

// A pooler that is full lets a client log in, and keeps its first statement waiting.
func TestAListenThatIsNotAnsweredEndsWithTheSubscription(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	notifier, err := pqnotify.New(fmt.Sprintf("host=127.0.0.1 port=%d user=web dbname=app sslmode=disable", port), nil)
	if err != nil {
		t.Fatal(err)
	}
	unsubscribe := notifier.Subscribe(func(string) {})
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	client := bufio.NewReader(conn)
	var length uint32
	if err := binary.Read(client, binary.BigEndian, &length); err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, client, int64(length)-4); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "R\x00\x00\x00\x08\x00\x00\x00\x00Z\x00\x00\x00\x05I"); err != nil { // logged in, ready
		t.Fatal(err)
	}
	if kind, err := client.ReadByte(); kind != 'Q' {
		t.Fatalf("got %q, %v, want LISTEN", kind, err)
	}
	unsubscribe()
	var timeout net.Error
	if _, err := io.Copy(io.Discard, client); errors.As(err, &timeout) && timeout.Timeout() {
		t.Error("the connection stays open")
	}
}
