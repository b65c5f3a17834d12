package storehttp_test

import (
	"net/http"
	"testing"

	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/store/storetest"
	"agentlightning/storehttp"
)

var controlIsElsewhere = storetest.Lack{Power: storetest.Control, Reason: "the 1.0 protocol has its own client, in package gateway"}

var browsingIsForPeople = storetest.Lack{Power: storetest.Browse, Reason: "its routes are for the dashboard; the client does not call them"}

// TestContract judges the client against the server by the suite for stores.
func TestContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, openOver(nil), controlIsElsewhere, browsingIsForPeople)
}

// TestContractOverPythonServer judges the client against a server that has only
// what the Python implementation has.
func TestContractOverPythonServer(t *testing.T) {
	t.Parallel()
	const reason = "the 0.3 protocol has no route for it"
	storetest.Run(t, openOver(pythonLike),
		storetest.Lack{Power: storetest.Keys, Reason: reason},
		storetest.Lack{Power: storetest.Release, Reason: reason},
		storetest.Lack{Power: storetest.Runs, Reason: reason},
		storetest.Lack{Power: storetest.Models, Reason: reason},
		controlIsElsewhere, browsingIsForPeople)
}

func openOver(wrap func(http.Handler) http.Handler) storetest.Opener {
	return func(t *testing.T, o storetest.Options) store.Store {
		t.Helper()
		s := engine.New(memory.New(), engine.Config{Now: o.Now, HealthScanInterval: o.HealthScanInterval})
		t.Cleanup(func() { _ = s.Close() })
		handler := storehttp.NewHandler(s, storehttp.Config{})
		if wrap != nil {
			handler = wrap(handler)
		}
		return newClient(t, serve(t, handler, "").URL)
	}
}
