//go:build noui

package dashboard

import (
	"embed"
	"io/fs"
	"net/http"
)

//go:embed noui
var files embed.FS

// Handler serves a page that says that there is no interface.
func Handler() http.Handler {
	root, err := fs.Sub(files, "noui")
	if err != nil {
		panic(err) //nolint:forbidigo // the folder is embedded above
	}
	return serve(root)
}
