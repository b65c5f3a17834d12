//go:build !noui

package dashboard

import (
	"embed"
	"io/fs"
	"net/http"
)

//go:embed all:dist
var files embed.FS

// Handler serves the interface. Paths that name no file are pages of the
// interface and get its index. It works below any path, as long as a proxy in
// front hands on what is below that path.
func Handler() http.Handler {
	root, err := fs.Sub(files, "dist")
	if err != nil {
		panic(err) //nolint:forbidigo // the folder is embedded above
	}
	return serve(root)
}
