// Package dashboard is the web interface of the server: files built ahead and
// embedded, so that one binary serves them without a network. Their sources are
// in the folder ui. A program built with the tag noui has a page in their place
// that says so.
package dashboard

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"
)

// site serves files.
type site struct {
	root fs.FS

	mu     sync.Mutex
	loaded map[string]*file
}

// file is one that was asked for.
type file struct {
	plain, packed []byte // packed is nil when that is no smaller
	tag           string
}

func serve(root fs.FS) http.Handler {
	return &site{root: root, loaded: map[string]*file{}}
}

// policy lets a page load what is of this server and nothing else.
const policy = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; " +
	"object-src 'none'; base-uri 'self'; frame-ancestors 'none'; form-action 'self'"

// baseMark is where the index says below which address everything is. A page
// further down gets as many steps up, so that the interface works below any path
// that a proxy takes away.
const baseMark = `<base href="./">`

func based(index []byte, path string) []byte {
	depth := strings.Count(strings.TrimPrefix(path, "/"), "/")
	if depth == 0 {
		return index
	}
	return bytes.Replace(index, []byte(baseMark), []byte(`<base href="`+strings.Repeat("../", depth)+`">`), 1)
}

// ServeHTTP implements [http.Handler].
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", http.MethodGet)
		answer(w, http.StatusMethodNotAllowed, `{"detail":"Method Not Allowed"}`)
		return
	}
	name := strings.TrimPrefix(path.Clean(r.URL.Path), "/")
	if name == ".." || strings.HasPrefix(name, "../") {
		answer(w, http.StatusBadRequest, `{"detail":"invalid URL path"}`)
		return
	}
	f := s.load(name)
	page := f == nil || name == "index.html"
	switch {
	case f == nil && (strings.HasPrefix(name, "assets/") || strings.Contains(name, "/assets/")):
		// The index in its place would be a script that makes no sense.
		answer(w, http.StatusNotFound, `{"detail":"Not Found"}`)
		return
	case f == nil:
		name = "index.html"
		if f = s.load(name); f == nil {
			answer(w, http.StatusNotFound, `{"detail":"the dashboard was not built"}`)
			return
		}
	}
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Vary", "Accept-Encoding")
	if page {
		if below := based(f.plain, r.URL.Path); len(below) != len(f.plain) {
			f = packed(below)
		}
		header.Set("Cache-Control", "no-cache")
		header.Set("Content-Security-Policy", policy)
	} else {
		header.Set("Cache-Control", "public, max-age=31536000, immutable") // their names change with what is in them
	}
	f.send(w, r, name)
}

func (f *file) send(w http.ResponseWriter, r *http.Request, name string) {
	header := w.Header()
	header.Set("Etag", f.tag)
	if r.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	kind := mime.TypeByExtension(path.Ext(name))
	if kind == "" {
		kind = "application/octet-stream"
	}
	header.Set("Content-Type", kind)
	body := f.plain
	if f.packed != nil && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		header.Set("Content-Encoding", "gzip")
		body = f.packed
	}
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodGet {
		_, _ = w.Write(body) // a browser that is gone needs nothing
	}
}

// load reads a file, or returns nil when there is none. It is packed the first
// time.
func (s *site) load(name string) *file {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f, ok := s.loaded[name]; ok {
		return f
	}
	info, err := fs.Stat(s.root, name)
	if err != nil || info.IsDir() {
		return nil // not remembered: callers can make names up
	}
	plain, err := fs.ReadFile(s.root, name)
	if err != nil {
		return nil
	}
	f := packed(plain)
	s.loaded[name] = f
	return f
}

func packed(plain []byte) *file {
	sum := sha256.Sum256(plain)
	f := &file{plain: plain, tag: `"` + hex.EncodeToString(sum[:8]) + `"`}
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write(plain) // a buffer takes everything
	_ = z.Close()
	if out.Len() < len(plain) {
		f.packed = out.Bytes()
	}
	return f
}

func answer(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}
