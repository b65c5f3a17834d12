package access

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"
	"time"

	"agentlightning/store"
)

// Why a token does not open anything.
var (
	ErrUnknown = errors.New("the token is not one of this server")
	ErrExpired = errors.New("the token has expired; ask for another one")
)

// Prefixes tell people, and scanners for leaked secrets, what they look at.
const (
	prefix       = "agl-attempt."
	readerPrefix = "agl-reader."
)

// Signer makes and reads the tokens of attempts. It is safe for concurrent use.
type Signer struct{ key []byte }

// NewSigner returns a signer. Its tokens are good for every signer with the same
// server token and the same secret. The secret keeps those who have an attempt's
// token from trying out server tokens at home; the server's token is in the key
// so that changing it takes all tokens back.
func NewSigner(serverToken string, secret []byte) *Signer {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("attempt tokens/1\x00" + serverToken)) // never fails
	return &Signer{mac.Sum(nil)}
}

// Issue returns a token for an attempt. The moment it expires counts in seconds.
func (s *Signer) Issue(at store.Attempted, expires time.Time) string {
	claims := binary.BigEndian.AppendUint64(nil, uint64(max(expires.Unix(), 0)))
	claims = binary.AppendUvarint(claims, uint64(len(at.RolloutID)))
	claims = append(append(claims, at.RolloutID...), at.AttemptID...)
	return prefix + base64.RawURLEncoding.EncodeToString(append(claims, s.sign(claims)...))
}

// Open returns the attempt that a token is for, [ErrUnknown] when this signer
// did not make it, and [ErrExpired].
func (s *Signer) Open(token string, now time.Time) (store.Attempted, error) {
	var at store.Attempted
	text, ours := strings.CutPrefix(token, prefix)
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	// The decoder skips line breaks; a token has one spelling only.
	if !ours || err != nil || strings.ContainsAny(text, "\r\n") || len(raw) < sha256.Size {
		return at, ErrUnknown
	}
	claims, signature := raw[:len(raw)-sha256.Size], raw[len(raw)-sha256.Size:]
	if !hmac.Equal(signature, s.sign(claims)) {
		return at, ErrUnknown
	}
	// What is signed is ours, so it has the right form.
	expires := time.Unix(int64(binary.BigEndian.Uint64(claims)), 0)
	size, n := binary.Uvarint(claims[8:])
	ids := string(claims[8+n:])
	at.RolloutID, at.AttemptID = ids[:size], ids[size:]
	if !now.Before(expires) {
		return at, ErrExpired
	}
	return at, nil
}

// IssueReader returns a token of somebody who may look at everything and change
// nothing.
func (s *Signer) IssueReader(expires time.Time) string {
	claims := binary.BigEndian.AppendUint64(nil, uint64(max(expires.Unix(), 0)))
	return readerPrefix + base64.RawURLEncoding.EncodeToString(append(claims, s.signReader(claims)...))
}

// OpenReader returns nil for a token that [Signer.IssueReader] made, otherwise
// [ErrUnknown] or [ErrExpired].
func (s *Signer) OpenReader(token string, now time.Time) error {
	text, ours := strings.CutPrefix(token, readerPrefix)
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if !ours || err != nil || strings.ContainsAny(text, "\r\n") || len(raw) != 8+sha256.Size || !hmac.Equal(raw[8:], s.signReader(raw[:8])) {
		return ErrUnknown
	}
	if !now.Before(time.Unix(int64(binary.BigEndian.Uint64(raw)), 0)) {
		return ErrExpired
	}
	return nil
}

// signReader signs with a key of its own, so that no token is good as one of the
// other kind.
func (s *Signer) signReader(claims []byte) []byte {
	key := hmac.New(sha256.New, s.key)
	key.Write([]byte("readers"))
	mac := hmac.New(sha256.New, key.Sum(nil))
	mac.Write(claims)
	return mac.Sum(nil)
}

func (s *Signer) sign(claims []byte) []byte {
	mac := hmac.New(sha256.New, s.key)
	mac.Write(claims)
	return mac.Sum(nil)
}
