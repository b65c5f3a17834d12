package daemon

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificate is a certificate in two files, which may be renewed while the
// server runs. It is safe for concurrent use.
type certificate struct {
	cert, key string
	log       *slog.Logger

	mu     sync.Mutex
	pair   *tls.Certificate
	stamps [2]stamp
	looked time.Time
	every  time.Duration // between two looks
}

// stamp tells two contents of a file apart.
type stamp struct {
	changed time.Time
	size    int64
}

func loadCertificate(cert, key string, every time.Duration, log *slog.Logger) (*certificate, error) {
	c := &certificate{cert: cert, key: key, log: log, every: every}
	c.stamps = c.look()
	pair, err := c.load()
	if err != nil {
		return nil, err
	}
	c.pair = pair
	return c, nil
}

func (c *certificate) load() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert %s, --tls-key %s: %w", c.cert, c.key, err)
	}
	return &pair, nil
}

func (c *certificate) look() (out [2]stamp) {
	for i, file := range []string{c.cert, c.key} {
		if info, err := os.Stat(file); err == nil {
			out[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return out
}

// get returns the certificate for a new connection, from the files if they have
// changed. One that cannot be read, such as half of a renewal, is reported, and
// the one before it stays.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.looked) >= c.every {
		c.looked = now
		if stamps := c.look(); stamps != c.stamps {
			c.stamps = stamps
			if pair, err := c.load(); err != nil {
				c.log.Error("the renewed certificate cannot be used; the one before it stays", "err", err)
			} else {
				c.pair = pair
				c.log.Info("the certificate was renewed", "file", c.cert)
			}
		}
	}
	return c.pair, nil
}
