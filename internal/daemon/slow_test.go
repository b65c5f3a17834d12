package daemon_test

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/internal/daemon"
	"agentlightning/llmproxy"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

func dial(t *testing.T, url string) net.Conn {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestBodyThatStops sends half of a body and waits.
func TestBodyThatStops(t *testing.T) {
	t.Parallel()
	url, _ := start(t, daemon.Hurry(daemon.Config{AuthToken: "secret"}, 50*time.Millisecond, time.Minute))
	for _, tt := range []struct {
		path, kind, token string
		status            int
	}{
		{"/v1/agl/rollouts", "application/json", "secret", 408},
		{"/v1/chat/completions", "application/json", "secret", 408},
		{"/v1/traces", "application/x-protobuf", "secret", 408},
		{"/v1/agl/rollouts", "application/json", "wrong", 401},
	} {
		path := tt.path
		conn := dial(t, url)
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\nContent-Type: %s\r\nContent-Length: 100\r\n\r\n{", path, tt.token, tt.kind)
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Errorf("%s: %v, want an answer", path, err)
			continue
		}
		if body, _ := io.ReadAll(res.Body); res.StatusCode != tt.status {
			t.Errorf("%s with token %s = %d %s, want %d", path, tt.token, res.StatusCode, body, tt.status)
		}
		_ = res.Body.Close()
	}
}

// TestHeaderThatStops sends half of a header and waits.
func TestHeaderThatStops(t *testing.T) {
	t.Parallel()
	url, _ := start(t, daemon.HurryHeader(daemon.Config{}, 50*time.Millisecond))
	conn := dial(t, url)
	fmt.Fprint(conn, "POST /v1/agl/rollouts HTTP/1.1\r\nHost: x\r\nX-Slow: ")
	began := time.Now()
	if text, err := io.ReadAll(conn); err != nil || strings.Contains(string(text), " 200 ") {
		t.Errorf("the server answers %q, %v, want the end of the connection", text, err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the connection was held for %v", took)
	}
}

// TestLongPollOutlivesTheBodyLimit: what limits bodies does not limit the wait
// for an answer, on the same connection again and again.
func TestLongPollOutlivesTheBodyLimit(t *testing.T) {
	t.Parallel()
	url, _ := start(t, daemon.Hurry(daemon.Config{}, 30*time.Millisecond, 40*time.Millisecond))
	conn := dial(t, url)
	answers := bufio.NewReader(conn)
	for range 3 {
		const body = `{"limit":1}`
		fmt.Fprintf(conn, "POST /v1/agl/queues/rollouts/dequeue HTTP/1.1\r\nHost: x\r\nPrefer: wait=0.3\r\n"+
			"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		began := time.Now()
		res, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK || string(text) != "[]" {
			t.Fatalf("dequeue = %d %s, %v, want an empty list", res.StatusCode, text, err)
		}
		if took := time.Since(began); took < 250*time.Millisecond {
			t.Fatalf("the answer came after %v: it did not wait", took)
		}
	}
}

// TestReaderThatStops asks for a long stream and does not read it: the server
// gives up, which the count of requests in flight shows.
func TestReaderThatStops(t *testing.T) {
	t.Parallel()
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		event := "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"" + strings.Repeat("x", 1000) + "\"}}]}\n\n"
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, event); err != nil {
				return
			}
		}
	}))
	t.Cleanup(backend.Close)
	url, _ := start(t, daemon.Hurry(daemon.Config{Proxy: llmproxy.Config{Static: []agl.Model{{Name: "m", Endpoint: backend.URL}}}}, time.Minute, 100*time.Millisecond))
	conn := dial(t, url)
	if err := conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	const body = `{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]}`
	fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range 500 {
		<-tick.C
		_, _, metrics := request(t, "GET", url+"/metrics", "")
		if strings.Contains(metrics, `agl_http_total{method="POST",path="/v1/chat/completions",status="200"} 1`) {
			return
		}
	}
	t.Error("the server still writes to a client that does not read, ten seconds later")
}

// certificate writes a certificate for 127.0.0.1 and its key.
func certificate(t *testing.T) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool = x509.NewCertPool()
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(parsed)
	return cert, key, pool
}

// TestRenewedCertificate replaces the files of a certificate under a running
// server, at first by some that do not go together.
func TestRenewedCertificate(t *testing.T) {
	t.Parallel()
	cert, key, first := certificate(t)
	newCert, newKey, second := certificate(t)
	url, _ := start(t, daemon.Renew(daemon.Config{TLSCert: cert, TLSKey: key}))
	trusts := func(pool *x509.CertPool) bool {
		t.Helper()
		d := tls.Dialer{Config: &tls.Config{RootCAs: pool}}
		conn, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "https://"))
		if err != nil {
			return false
		}
		return conn.Close() == nil
	}
	replace := func(file, by string) {
		t.Helper()
		if err := os.Rename(by, file); err != nil {
			t.Fatal(err)
		}
	}
	if !trusts(first) || trusts(second) {
		t.Fatal("the server does not show its certificate")
	}
	replace(cert, newCert)
	if !trusts(first) {
		t.Error("a certificate without its key took the place of the one before")
	}
	replace(key, newKey)
	if !trusts(second) || trusts(first) {
		t.Error("the server does not show the renewed certificate")
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	cert, key, pool := certificate(t)
	url, _ := start(t, daemon.Config{TLSCert: cert, TLSKey: key})
	if !strings.HasPrefix(url, "https://127.0.0.1:") {
		t.Fatalf("URL = %s, want https", url)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true, ForceAttemptHTTP2: true}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK || res.TLS == nil || res.ProtoMajor != 1 {
		t.Errorf("GET /healthz = %d over %s, want 200 over HTTP/1.1 with TLS", res.StatusCode, res.Proto)
	}
	for _, c := range []daemon.Config{{TLSCert: cert}, {TLSKey: key}, {TLSCert: key, TLSKey: cert}, {TLSCert: cert + "x", TLSKey: key}} {
		c.Store = engine.New(memory.New(), engine.Config{})
		if _, err := daemon.Listen(t.Context(), c); err == nil || !strings.Contains(err.Error(), "--tls-") {
			t.Errorf("Listen with certificate %q and key %q = %v, want an error that names the flags", c.TLSCert, c.TLSKey, err)
		}
		_ = c.Store.Close()
	}
}
