package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"strings"
	"time"

	"agentlightning/store"
)

// Guard knows the server's token and reads those of attempts.
type Guard struct {
	want   [sha256.Size]byte
	signer *Signer
}

// NewGuard returns the guard of a server's token, which must not be empty.
func NewGuard(serverToken string, signer *Signer) *Guard {
	return &Guard{sha256.Sum256([]byte(serverToken)), signer}
}

// Grant is what a caller may do: everything, what belongs to one attempt, or look.
type Grant struct {
	// Attempt is nil for whoever has the server's token, and for readers.
	Attempt *store.Attempted
	// Reader may look at everything and change nothing.
	Reader bool
}

// Admit looks at the tokens that a caller presents; one that is good is enough.
// Without any, the error is nil and ok false.
func (g *Guard) Admit(presented []string, now time.Time) (grant Grant, ok bool, err error) {
	for _, token := range presented {
		// Hashed first, so that neither length nor content shows in the time taken.
		got := sha256.Sum256([]byte(token))
		if subtle.ConstantTimeCompare(got[:], g.want[:]) == 1 {
			return Grant{}, true, nil
		}
	}
	for _, token := range presented {
		at, failed := g.signer.Open(token, now)
		if failed == nil {
			return Grant{Attempt: &at}, true, nil
		}
		if errors.Is(failed, ErrUnknown) {
			if failed = g.signer.OpenReader(token, now); failed == nil {
				return Grant{Reader: true}, true, nil
			}
		}
		if !errors.Is(err, ErrExpired) {
			err = failed
		}
	}
	return Grant{}, false, err
}

// Presented returns the tokens of a request, in all the ways that clients know:
// Authorization with Bearer, as those of OpenAI do; with Basic, where the
// password counts, as URLs with a user in them make it; and X-Api-Key, as
// Anthropic's.
func Presented(authorization, apiKey string) []string {
	var tokens []string
	scheme, rest, _ := strings.Cut(authorization, " ")
	rest = strings.TrimSpace(rest)
	switch {
	case strings.EqualFold(scheme, "Bearer") && rest != "":
		tokens = append(tokens, rest)
	case strings.EqualFold(scheme, "Basic"):
		plain, err := base64.StdEncoding.DecodeString(rest)
		if _, password, found := strings.Cut(string(plain), ":"); err == nil && found {
			tokens = append(tokens, password)
		}
	}
	if apiKey != "" {
		tokens = append(tokens, apiKey)
	}
	return tokens
}
