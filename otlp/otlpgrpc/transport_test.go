package otlpgrpc_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	rpc "connectrpc.com/connect"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"

	agl "agentlightning"
	"agentlightning/otlp"
	"agentlightning/otlp/otlpgrpc"
	"agentlightning/store"
)

// at is an attempt for stores that do not look.
var at = store.Attempted{RolloutID: "ro-1", AttemptID: "at-1"}

// waiting holds every write until the test lets it go or the call ends.
type waiting struct {
	entered chan struct{}
	release chan struct{}
}

func newWaiting() waiting { return waiting{make(chan struct{}, 1), make(chan struct{})} }

func (w waiting) AddSpans(ctx context.Context, spans []agl.Span) ([]store.AddedSpan, error) {
	w.entered <- struct{}{}
	select {
	case <-w.release:
		return make([]store.AddedSpan, len(spans)), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (w waiting) NextSequenceIDs(_ context.Context, a []store.Attempted) ([]int64, error) {
	return make([]int64, len(a)), nil
}

func TestOverTLS(t *testing.T) {
	t.Parallel()
	pair := httptest.NewUnstartedServer(nil)
	pair.StartTLS() // for its certificate
	t.Cleanup(pair.Close)
	s, r := newStore(t)
	address := serve(t, s, otlp.Config{}, otlpgrpc.Config{TLS: &tls.Config{Certificates: pair.TLS.Certificates, MinVersion: tls.VersionTLS12}})
	roots := pair.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	exporter, err := otlptracegrpc.New(t.Context(), otlptracegrpc.WithEndpoint(address),
		otlptracegrpc.WithTLSCredentials(credentials.NewClientTLSFromCert(roots, "example.com")))
	if err != nil {
		t.Fatal(err)
	}
	record(t, exporter, r)
	if n := len(spansOf(t, s, r)); n != 2 {
		t.Errorf("%d spans are stored, want 2", n)
	}
}

// TestShutdownLetsCallsFinish stops a server during a call, which is answered.
func TestShutdownLetsCallsFinish(t *testing.T) {
	t.Parallel()
	w := newWaiting()
	server, address := start(t, w, otlp.Config{}, otlpgrpc.Config{})
	call := export(t.Context(), t, address)
	<-w.entered
	stopped := make(chan error, 1)
	go func() { stopped <- server.Shutdown(t.Context()) }()
	// No new connection is taken from some moment on; the call is still there.
	for refused := false; !refused; {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if refused = err != nil; !refused {
			_ = conn.Close()
		}
	}
	select {
	case err := <-stopped:
		t.Fatalf("Shutdown = %v during a call", err)
	case err := <-call:
		t.Fatalf("the call ended with %v", err)
	default:
	}
	close(w.release)
	if err := <-call; err != nil {
		t.Errorf("Export = %v, want no error", err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Shutdown = %v", err)
	}
}

// TestShutdownHasAnEnd stops a server during a call that does not end: the store
// is told, and the exporter may try again.
func TestShutdownHasAnEnd(t *testing.T) {
	t.Parallel()
	w := newWaiting()
	server, address := start(t, w, otlp.Config{}, otlpgrpc.Config{})
	call := export(t.Context(), t, address)
	<-w.entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := server.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown = %v", err)
	}
	if err := <-call; status.Code(err) != codes.Unavailable && status.Code(err) != codes.Canceled {
		t.Errorf("Export = %v, want a code that exporters try again", err)
	}
}

func TestDeadlineOfTheCall(t *testing.T) {
	t.Parallel()
	w := newWaiting()
	ended := make(chan rpc.Code, 1)
	_, address := start(t, w, otlp.Config{}, otlpgrpc.Config{Done: func(code rpc.Code, _ time.Duration) { ended <- code }})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := <-export(ctx, t, address); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("Export = %v, want %v", err, codes.DeadlineExceeded)
	}
	select {
	case <-w.entered:
	default:
		return // on a busy machine the call did not come that far
	}
	// The exporter's own clock may end the call a moment before ours does.
	if code := <-ended; code != rpc.CodeDeadlineExceeded && code != rpc.CodeCanceled {
		t.Errorf("the call ended as %v, want %v", code, rpc.CodeDeadlineExceeded)
	}
}

// TestPackedTooLarge sends what is small until it is unpacked.
func TestPackedTooLarge(t *testing.T) {
	t.Parallel()
	s, r := newStore(t)
	client := ptraceotlp.NewGRPCClient(connect(t, serve(t, s, otlp.Config{}, otlpgrpc.Config{MaxMessage: 1 << 20})))
	to := store.Attempted{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID}
	_, err := client.Export(t.Context(), traces(1, to, strings.Repeat("x", 8<<20)), grpc.UseCompressor(gzip.Name))
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("Export = %v, want %v", err, codes.ResourceExhausted)
	}
	if n := len(spansOf(t, s, r)); n != 0 {
		t.Errorf("%d spans are stored, want none", n)
	}
}

func TestEmptyExport(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	client := ptraceotlp.NewGRPCClient(connect(t, serve(t, s, otlp.Config{}, otlpgrpc.Config{})))
	if _, err := client.Export(t.Context(), ptraceotlp.NewExportRequest()); err != nil {
		t.Errorf("Export of nothing = %v", err)
	}
}

// TestNoGRPC has other clients come to the port.
func TestNoGRPC(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	address := serve(t, s, otlp.Config{}, otlpgrpc.Config{})
	var h2 http.Protocols
	h2.SetUnencryptedHTTP2(true)
	two := &http.Transport{Protocols: &h2}
	t.Cleanup(two.CloseIdleConnections)
	for _, kind := range []string{"application/x-protobuf", "application/json", "application/grpc+json", "application/grpc-web", ""} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+otlpgrpc.Method, bytes.NewReader(nil))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", kind)
		resp, err := two.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusUnsupportedMediaType || !strings.Contains(string(text), "this port is for gRPC") {
			t.Errorf("%q: %s, %q, %v, want 415 with the reason", kind, resp.Status, text, err)
		}
	}
	one := &http.Transport{}
	t.Cleanup(one.CloseIdleConnections)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := one.RoundTrip(req); err == nil {
		_ = resp.Body.Close()
		t.Errorf("HTTP/1.1 is answered with %s, want a closed connection", resp.Status)
	}
}

// export exports a span in the background.
func export(ctx context.Context, t *testing.T, address string) <-chan error {
	t.Helper()
	client := ptraceotlp.NewGRPCClient(connect(t, address))
	out := make(chan error, 1)
	go func() {
		_, err := client.Export(ctx, traces(1, at, "x"))
		out <- err
	}()
	return out
}
