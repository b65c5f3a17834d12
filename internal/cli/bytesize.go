package cli

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// byteSize is a flag in bytes, written with or without a unit.
type byteSize int64

var byteUnits = []struct {
	name  string
	bytes int64
}{
	{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1},
}

// Set implements [pflag.Value].
func (b *byteSize) Set(text string) error {
	unit := int64(1)
	number := strings.TrimSpace(text)
	for _, u := range byteUnits {
		if len(number) > len(u.name) && strings.EqualFold(number[len(number)-len(u.name):], u.name) {
			number, unit = strings.TrimSpace(number[:len(number)-len(u.name)]), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit {
		return errors.New("must be a number of bytes, as in 1000000, 64MiB or 1GB")
	}
	*b = byteSize(n * unit)
	return nil
}

// String implements [pflag.Value].
func (b *byteSize) String() string {
	for _, u := range byteUnits[:3] {
		if int64(*b) >= u.bytes && int64(*b)%u.bytes == 0 {
			return strconv.FormatInt(int64(*b)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(*b), 10)
}

// Type implements [pflag.Value].
func (*byteSize) Type() string { return "bytes" }
