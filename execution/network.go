package execution

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"agentlightning/store"
	"agentlightning/storehttp"
)

// Network plays one role among processes that meet at a store server.
type Network struct {
	// Role is the part of this process. With [RoleBoth] algorithm and runners
	// are here, and others may join through Listen.
	Role Role
	// URL is the address of a server that is running. Required for
	// [RoleRunner]; the algorithm may use Listen instead.
	URL string
	// Token is sent to the server at URL, when it has one.
	Token string
	// Listen is the address at which the given store is served to the runners
	// while the algorithm works on it.
	Listen string
	// Unmanaged takes the given store as it is: nothing is served or connected.
	Unmanaged bool
	// Logger is told of the server and of requests that are tried again; nil discards.
	Logger *slog.Logger

	serves func(url string) // is told where the store is served; nil for nobody
}

var _ Strategy = Network{}

// stopServer is how long requests may take to end once the work is done.
const stopServer = 5 * time.Second

// Execute implements [Strategy]. A store is needed unless URL is given.
func (n Network) Execute(ctx context.Context, w Work, s store.Store) error {
	if n.Logger == nil {
		n.Logger = slog.New(slog.DiscardHandler)
	}
	switch n.Role {
	case RoleBoth:
	case RoleAlgorithm:
		w.Runners = 0
	case RoleRunner:
		w.Algorithm = nil
	default:
		return fmt.Errorf("execution: role %q: must be %s, %s or %s", n.Role, RoleBoth, RoleAlgorithm, RoleRunner)
	}
	local := InProcess{Logger: n.Logger}
	switch {
	case n.Unmanaged:
		return local.Execute(ctx, w, s)
	case n.URL != "":
		return n.connected(ctx, w, local)
	case n.Role == RoleRunner:
		return errors.New("execution: the role runner needs the URL of a store server; start one with 'agl serve'")
	case n.Listen == "":
		return fmt.Errorf("execution: the role %s needs the URL of a store server, or an address to serve the store at", n.Role)
	case s == nil:
		return fmt.Errorf("execution: there is no store to serve at %s", n.Listen)
	}
	return n.serving(ctx, w, local, s)
}

// connected works on the store of a server that is running.
func (n Network) connected(ctx context.Context, w Work, local InProcess) (err error) {
	options := []storehttp.Option{storehttp.WithLogger(n.Logger)}
	if n.Token != "" {
		options = append(options, storehttp.WithToken(n.Token))
	}
	client, err := storehttp.NewClient(n.URL, options...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	return local.Execute(ctx, w, client)
}

// serving offers the store to runners elsewhere for as long as the work takes.
func (n Network) serving(ctx context.Context, w Work, local InProcess, s store.Store) error {
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", n.Listen)
	if err != nil {
		return fmt.Errorf("cannot listen on %s: %w; stop the other process or choose another port", n.Listen, err)
	}
	// Requests that wait for work end with requests, so that the server can stop.
	requests, endRequests := context.WithCancel(context.WithoutCancel(ctx))
	defer endRequests()
	offered := &offered{Store: s, ended: make(chan struct{}), told: map[string]bool{}}
	w.Algorithm = offered.endWith(w.Algorithm)
	server := &http.Server{
		Handler:           storehttp.NewHandler(offered, storehttp.Config{Logger: n.Logger}),
		BaseContext:       func(net.Listener) context.Context { return requests },
		ReadHeaderTimeout: 10 * time.Second,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(storehttp.WatchConns(server, l)) }()
	n.Logger.InfoContext(ctx, "serving the store", "url", "http://"+l.Addr().String())

	if n.serves != nil {
		n.serves("http://" + l.Addr().String())
	}
	workCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	worked := make(chan error, 1)
	go func() { worked <- local.Execute(workCtx, w, s) }()
	select {
	case err = <-worked:
	case failed := <-served:
		cancel(fmt.Errorf("store server: %w", failed))
		return <-worked
	}
	offered.awaitTold(ctx)
	endRequests()
	stopping, stopped := context.WithTimeout(context.WithoutCancel(ctx), stopServer)
	defer stopped()
	if failed := server.Shutdown(stopping); failed != nil {
		n.Logger.WarnContext(ctx, "requests were cut off at the end", "err", failed)
		_ = server.Close()
	}
	if failed := <-served; !errors.Is(failed, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("store server: %w", failed))
	}
	return err
}
