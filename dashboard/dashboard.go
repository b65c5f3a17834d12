// Package dashboard is the web interface of the server: files built ahead and
// embedded, so that one binary serves them without a network.
//
// Today it is one plain page that shows the runs with their curves, the newest
// rollouts, the workers and the model backends.
package dashboard

import (
	"embed"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

//go:embed dist
var files embed.FS

// Handler serves the interface. Paths that name no file are pages of the
// interface and get its index.
func Handler() http.Handler {
	root, err := fs.Sub(files, "dist")
	if err != nil {
		panic(err) //nolint:forbidigo // the folder is embedded above
	}
	server := http.FileServerFS(root)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", http.MethodGet)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusMethodNotAllowed)
			_, _ = w.Write([]byte(`{"detail":"Method Not Allowed"}`))
			return
		}
		name := strings.TrimPrefix(path.Clean(r.URL.Path), "/")
		if _, err := fs.Stat(root, name); err != nil || name == "" {
			w.Header().Set("Cache-Control", "no-cache")
			http.ServeFileFS(w, r, root, "index.html")
			return
		}
		server.ServeHTTP(w, r)
	})
}
