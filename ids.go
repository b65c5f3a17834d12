package agl

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"math"
	"strconv"
	"time"

	"agentlightning/internal/jsonx"
)

// NewRolloutID returns a fresh id: "ro-" and 12 hex digits.
func NewRolloutID() string { return "ro-" + randomHex(6) }

// NewAttemptID returns a fresh id: "at-" and 8 hex digits.
func NewAttemptID() string { return "at-" + randomHex(4) }

// NewResourcesID returns a fresh id: "rs-" and 12 hex digits.
func NewResourcesID() string { return "rs-" + randomHex(6) }

// NewRunID returns a fresh id: "run-" and 12 hex digits.
func NewRunID() string { return "run-" + randomHex(6) }

// NewTraceID returns 32 random hex digits.
func NewTraceID() string { return randomHex(16) }

// NewSpanID returns 16 random hex digits.
func NewSpanID() string { return randomHex(8) }

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // crypto/rand.Read never fails; it ends the program instead
	return hex.EncodeToString(b)
}

// Seconds converts a time to the protocol's Unix seconds, microseconds kept.
func Seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// Time converts the protocol's Unix seconds to a time, to the microsecond.
func Time(seconds float64) time.Time { return time.UnixMicro(int64(math.Round(seconds * 1e6))) }

func appendInt(dst []byte, n int64) []byte { return strconv.AppendInt(dst, n, 10) }

func appendOrNull(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	return jsonx.AppendString(dst, s)
}

func nullToNil(raw json.RawMessage) json.RawMessage {
	if bytes.Equal(raw, []byte("null")) {
		return nil
	}
	return raw
}
