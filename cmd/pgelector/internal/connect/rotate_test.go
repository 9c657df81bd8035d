package connect

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// writeCertificate writes a certificate of that serial number, and its key.
func writeCertificate(t *testing.T, cert, key string, serial int64) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: pkcs8}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// serverThatLooks is a server that sends the serial number of each client's certificate, and hangs up.
func serverThatLooks(t *testing.T, own tls.Certificate) (port string, shown <-chan int64) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	numbers := make(chan int64, 100)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadFull(conn, make([]byte, 8)) // SSLRequest
			_, _ = conn.Write([]byte("S"))
			client := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAnyClientCert})
			if client.Handshake() == nil {
				numbers <- client.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
			}
			_ = conn.Close()
		}
	}()
	_, port, _ = net.SplitHostPort(listener.Addr().String())
	return port, numbers
}

// The certificate of a client may live for a day, and a tool renews its file. psql reads it for each
// connection.
func TestACertificateThatChangesInItsFileIsFound(t *testing.T) {
	clean(t)
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "client.crt"), filepath.Join(dir, "client.key")
	writeCertificate(t, cert, key, 7)
	own, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	for _, driver := range []string{PGX, PQ} {
		port, shown := serverThatLooks(t, own)
		writeCertificate(t, cert, key, 1)
		target, err := Find("host=127.0.0.1 port="+port+" user=app dbname=shop sslmode=require sslcert="+cert+" sslkey="+key, driver, "me")
		if err != nil {
			t.Fatal(err)
		}
		pool, err := target.Open(Election)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		writeCertificate(t, cert, key, 2)
		err = pool.PingContext(t.Context())
		select {
		case got := <-shown:
			if got != 2 {
				t.Errorf("%s shows the certificate %d, and the file has another one", driver, got)
			}
		case <-time.After(90 * time.Second):
			t.Errorf("%s shows no certificate: %v", driver, err)
		}
	}
}
