package cli

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"agentlightning/internal/daemon"
)

// admitting adds to the refusal of an address that others reach the command that
// would have been right: the same one, with a token.
func admitting(cmd *cobra.Command, err error) error {
	if _, ok := errors.AsType[*daemon.OpenAddressError](err); !ok {
		return err
	}
	token := make([]byte, 24)
	_, _ = rand.Read(token) // never fails
	words := []string{"AGL_AUTH_TOKEN=" + hex.EncodeToString(token), cmd.CommandPath()}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Name == "auth-token" {
			return
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			if f.Value.Type() == "bool" {
				words = append(words, "--"+f.Name+"="+v)
				continue
			}
			words = append(words, "--"+f.Name, quote(v))
		}
	})
	return fmt.Errorf("%w; this admits remote runners that are given the token: %s", err, strings.Join(words, " "))
}

var plain = regexp.MustCompile(`^[a-zA-Z0-9@%+=:,./_-]+$`)

// quote writes a word as a shell reads it.
func quote(word string) string {
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
