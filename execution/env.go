package execution

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Role is the part that a process plays.
type Role string

// The roles.
const (
	RoleBoth      Role = "both"
	RoleAlgorithm Role = "algorithm"
	RoleRunner    Role = "runner"
)

// Valid reports whether r is a role.
func (r Role) Valid() bool { return r == RoleBoth || r == RoleAlgorithm || r == RoleRunner }

// The environment variables by which roles are given from outside.
const (
	EnvRole         = "AGL_CURRENT_ROLE"  // both, algorithm or runner
	EnvServerHost   = "AGL_SERVER_HOST"   // where the algorithm serves the store and runners look for it
	EnvServerPort   = "AGL_SERVER_PORT"   // its port
	EnvManagedStore = "AGL_MANAGED_STORE" // whether a strategy serves and connects; otherwise it uses the given store
)

// What holds when neither the caller nor the environment says otherwise.
const (
	DefaultHost = "localhost"
	DefaultPort = 4747
)

// Settings are what the environment says about roles.
type Settings struct {
	Role    Role
	Host    string
	Port    int
	Managed bool
}

// Address is host and port as [net.Listen] wants them.
func (s Settings) Address() string { return net.JoinHostPort(s.Host, strconv.Itoa(s.Port)) }

// URL is the address of the server.
func (s Settings) URL() string { return "http://" + s.Address() }

// FromEnv reads the settings; lookup is usually [os.LookupEnv]. A variable that
// is not set, or empty, has its default; one that cannot be read is an error
// that names it.
func FromEnv(lookup func(key string) (string, bool)) (Settings, error) {
	value := func(key, standard string) string {
		if v, ok := lookup(key); ok {
			return cmp.Or(strings.TrimSpace(v), standard)
		}
		return standard
	}
	s := Settings{Role: Role(value(EnvRole, string(RoleBoth))), Host: value(EnvServerHost, DefaultHost)}
	if !s.Role.Valid() {
		return Settings{}, fmt.Errorf("%s=%s: must be %s, %s or %s", EnvRole, s.Role, RoleBoth, RoleAlgorithm, RoleRunner)
	}
	port := value(EnvServerPort, strconv.Itoa(DefaultPort))
	var err error
	if s.Port, err = strconv.Atoi(port); err != nil || s.Port < 0 || s.Port > 65535 {
		return Settings{}, fmt.Errorf("%s=%s: must be a port between 0 and 65535", EnvServerPort, port)
	}
	switch managed := value(EnvManagedStore, "true"); strings.ToLower(managed) {
	case "1", "true", "yes", "on":
		s.Managed = true
	case "0", "false", "no", "off":
	default:
		return Settings{}, fmt.Errorf("%s=%s: must be 1, true, yes or on, or 0, false, no or off", EnvManagedStore, managed)
	}
	return s, nil
}
