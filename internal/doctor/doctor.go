// Package doctor looks at what a server needs and says what is wrong and how to
// mend it.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	agl "agentlightning"
)

// Level says how bad a finding is.
type Level string

// The levels.
const (
	Good Level = "ok"
	Warn Level = "warn" // works, but not for long or not for many
	Bad  Level = "bad"  // does not work
)

// Finding is what was seen of one thing.
type Finding struct {
	Level Level
	Name  string // what was looked at
	Text  string // what was seen
	Fix   string // what to do; empty for nothing
}

// Config says what to look at.
type Config struct {
	// Host and Port are where the server listens, or would.
	Host string
	Port int
	// Scheme is that of the server, "http" or "https"; empty means "http".
	Scheme string
	// Serving says that the caller is the server: its port and its token are as
	// they should be.
	Serving bool
	// Token is the server's; empty for none.
	Token string
	// Insecure is whether a public address without a token is on purpose.
	Insecure bool
	// Database is the file of the database, empty when there is none.
	Database string
	// CheckDatabase looks into the file: a line about what it holds, and what is
	// wrong with it.
	CheckDatabase func(ctx context.Context, path string) (holds string, problems []string, err error)
	// Models are the backends to ask.
	Models []agl.Model
	// OpenFiles is how many files a process may open; 0 when it is not known.
	OpenFiles uint64
	// FreeSpace tells how much may still be stored in a folder; nil asks the
	// system.
	FreeSpace func(folder string) (uint64, error)
	// HTTP calls servers; nil means a client of its own.
	HTTP *http.Client
	// Now is the clock; nil means [time.Now].
	Now func() time.Time
}

// patience is how long anything may take to answer.
const patience = 5 * time.Second

// Examine looks at everything, in the order in which things are needed.
func Examine(ctx context.Context, c Config) []Finding {
	if c.HTTP == nil {
		c.HTTP = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	}
	if c.FreeSpace == nil {
		c.FreeSpace = freeSpace
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Scheme == "" {
		c.Scheme = "http"
	}
	e := &examination{Config: c}
	if !c.Serving {
		e.port(ctx)
		e.token(ctx)
	}
	e.database(ctx)
	e.disk()
	e.clock()
	e.files()
	e.models(ctx)
	return e.found
}

type examination struct {
	Config
	found  []Finding
	up     bool // the server answers
	skewed []string
}

func (e *examination) say(level Level, name, fix, text string, args ...any) {
	e.found = append(e.found, Finding{Level: level, Name: name, Text: fmt.Sprintf(text, args...), Fix: fix})
}

func (e *examination) address() string { return net.JoinHostPort(e.Host, strconv.Itoa(e.Port)) }

// port finds a server of ours, a free port, or somebody else.
func (e *examination) port(ctx context.Context) {
	const name = "port"
	res, err := e.get(ctx, e.Scheme+"://"+e.address()+"/healthz", "")
	switch {
	case err == nil && res.status == http.StatusOK && res.header.Get("X-Request-Id") != "":
		e.up = true
		e.say(Good, name, "", "a server answers on %s", e.address())
		return
	case err == nil:
		e.say(Bad, name, "stop the other program, or choose another port with --port",
			"something that is not this server answers on %s (status %d)", e.address(), res.status)
		return
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", e.address())
	if err != nil {
		e.say(Bad, name, "stop the other program, or choose another address with --host and --port",
			"nothing answers on %s, and it cannot be listened on: %v", e.address(), err)
		return
	}
	_ = listener.Close()
	e.say(Good, name, "", "%s is free; no server runs there", e.address())
}

func (e *examination) token(ctx context.Context) {
	const name, fix = "token", "set AGL_AUTH_TOKEN to a long random one, such as $(openssl rand -hex 32)"
	const short = 16
	ip := net.ParseIP(e.Host)
	public := e.Host != "localhost" && (ip == nil || !ip.IsLoopback())
	switch {
	case e.Token == "" && public && !e.Insecure:
		e.say(Bad, name, fix, "%s is reachable by others and no token is set: the server will refuse to start", e.Host)
		return
	case e.Token == "" && public:
		e.say(Warn, name, fix, "%s is reachable by others and asks for no token (--insecure)", e.Host)
	case e.Token == "":
		e.say(Good, name, "", "none, which is right for an address that only this machine reaches")
	case len(e.Token) < short:
		e.say(Warn, name, fix, "the token has %d characters and can be guessed", len(e.Token))
	default:
		e.say(Good, name, "", "set")
	}
	if !e.up {
		return
	}
	res, err := e.get(ctx, e.Scheme+"://"+e.address()+"/v1/agl/statistics", e.Token)
	switch {
	case err != nil:
		e.say(Bad, name, "look at the server's log", "the server stopped answering: %v", err)
	case res.status == http.StatusUnauthorized, res.status == http.StatusForbidden:
		e.say(Bad, name, "set AGL_AUTH_TOKEN, or --auth-token, to the token that the server was started with",
			"the running server does not take it (status %d)", res.status)
	case res.status != http.StatusOK:
		e.say(Bad, name, "look at the server's log for request "+res.header.Get("X-Request-Id"),
			"the running server answers %d", res.status)
	default:
		e.say(Good, name, "", "the running server takes it")
	}
}

// largeDatabase is from which size on a database is not looked into by the way.
const largeDatabase = 2 << 30

func (e *examination) database(ctx context.Context) {
	const name = "database"
	if e.Database == "" {
		e.say(Good, name, "", "in memory: nothing outlives the server")
		return
	}
	info, err := os.Stat(e.Database)
	switch {
	case errors.Is(err, os.ErrNotExist):
		e.folder()
		return
	case err != nil:
		e.say(Bad, name, "change the permissions of the file and its folders", "%v", err)
		return
	case info.Size() > largeDatabase:
		e.say(Good, name, "", "%s has %s; 'agl db check' looks into it, which takes a while", e.Database, bytes(uint64(info.Size())))
		return
	}
	holds, problems, err := e.CheckDatabase(ctx, e.Database)
	if err != nil {
		e.say(Bad, name, "choose another file with --db, or restore a backup", "%v", err)
		return
	}
	for _, p := range problems {
		e.say(Bad, name, "restore a backup ('agl db backup' makes them), or move the file away to start anew", "%s: %s", e.Database, p)
	}
	if len(problems) == 0 {
		e.say(Good, name, "", "%s is sound: %s", e.Database, holds)
	}
}

// folder tries to write where the database would be.
func (e *examination) folder() {
	const name = "database"
	folder := filepath.Dir(e.Database)
	f, err := os.CreateTemp(folder, ".agl-doctor-*")
	if err != nil {
		e.say(Bad, name, "create the folder "+folder+" and make it writable, or choose another file with --db",
			"%s does not exist and cannot be made: %v", e.Database, err)
		return
	}
	_ = errors.Join(f.Close(), os.Remove(f.Name()))
	e.say(Good, name, "", "%s does not exist yet and will be made", e.Database)
}

// Below these a disk is full soon, or as good as full.
const (
	littleSpace = 2 << 30
	noSpace     = 100 << 20
)

func (e *examination) disk() {
	const name, fix = "disk", "make room, or delete what is old with 'agl db prune --older-than 30d' and 'agl db vacuum'"
	if e.Database == "" {
		return
	}
	folder := filepath.Dir(e.Database)
	free, err := e.FreeSpace(folder)
	switch {
	case errors.Is(err, errors.ErrUnsupported), errors.Is(err, os.ErrNotExist):
	case err != nil:
		e.say(Warn, name, "", "the free space of %s is not known: %v", folder, err)
	case free < noSpace:
		e.say(Bad, name, fix, "%s has only %s left", folder, bytes(free))
	case free < littleSpace:
		e.say(Warn, name, fix, "%s has only %s left", folder, bytes(free))
	default:
		e.say(Good, name, "", "%s has %s left", folder, bytes(free))
	}
}

// clock compares the clock with those of others.
func (e *examination) clock() {
	const name, fix = "clock", "set the clock, and keep it right with NTP: time limits and tokens depend on it"
	now := e.Now()
	if info, err := os.Stat(e.Database); err == nil && e.Database != "" && info.ModTime().After(now.Add(time.Minute)) {
		e.say(Bad, name, fix, "it is %s here, but the database was written at %s", now.Format(time.DateTime), info.ModTime().Format(time.DateTime))
		return
	}
	for _, s := range e.skewed {
		e.say(Warn, name, fix, "%s", s)
	}
	if len(e.skewed) == 0 {
		e.say(Good, name, "", "%s", now.Format(time.RFC3339))
	}
}

// fewFiles is from how many connections on a server is in want of file handles.
const fewFiles = 4096

func (e *examination) files() {
	const name = "open files"
	switch {
	case e.OpenFiles == 0:
	case e.OpenFiles < fewFiles:
		e.say(Warn, name, "raise the hard limit, as with 'ulimit -Hn 65536' or LimitNOFILE= of systemd",
			"a process may open %d; each waiting runner and model call takes one", e.OpenFiles)
	default:
		e.say(Good, name, "", "a process may open %d", e.OpenFiles)
	}
}

func bytes(n uint64) string {
	const unit = 1 << 10
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/unit, 0
	for ; f >= unit && i < 3; i++ {
		f /= unit
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGT"[i])
}
