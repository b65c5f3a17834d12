package sqlite_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/sqlite"
)

// What was acknowledged is there when the file is opened again.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "agl")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "agl.db")

	open := func() (*engine.Store, error) {
		b, err := sqlite.Open(ctx, sqlite.Config{Path: path})
		if err != nil {
			return nil, err
		}
		return engine.New(b, engine.Config{}), nil
	}

	s, err := open()
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := s.EnqueueRollouts(ctx, []store.EnqueueRequest{{Input: json.RawMessage(`{"question":"6*7"}`)}}); err != nil {
		fmt.Println(err)
		return
	}
	if err := s.Close(); err != nil {
		fmt.Println(err)
		return
	}

	if s, err = open(); err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	claimed, err := s.DequeueRollouts(ctx, store.DequeueRequest{Limit: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(claimed[0].Status, string(claimed[0].Input))
	// Output: preparing {"question":"6*7"}
}
