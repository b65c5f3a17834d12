package openai

import (
	"fmt"

	"agentlightning/internal/jsonx"
)

// Draft is a request in one dialect that is made of one in another. What cannot
// be put that way is noted, and the rest goes on.
type Draft struct {
	jsonx.Builder

	refused *Error
}

// NewDraft returns the beginning of a request.
func NewDraft() *Draft {
	d := &Draft{}
	d.Open('{')
	return d
}

// Refuse notes that a member of the request, named as a path, cannot be served.
// The first one is what the caller is told.
func (d *Draft) Refuse(param, format string, args ...any) {
	if d.refused == nil {
		d.refused = &Error{Message: param + ": " + fmt.Sprintf(format, args...), Type: TypeInvalidRequest, Param: param}
	}
}

// Copy adds a member as it is, unless it is absent or null.
func (d *Draft) Copy(key string, raw []byte) {
	if present(raw) {
		d.Key(key).Raw(raw)
	}
}

// Stream adds stream where the caller wants one.
func (d *Draft) Stream(r *Request) {
	switch raw := r.Raw("stream"); {
	case r.Stream:
		d.Key("stream").Word("true")
	case present(raw) && string(raw) != "false":
		d.Refuse("stream", "%s must be true or false", clip(raw))
	}
}

// Rest adds the members of a request that are not named: backends know more
// than any list of theirs.
func (d *Draft) Rest(r *Request, named map[string]bool) {
	for _, m := range r.members {
		if !named[m.Key] {
			d.Copy(m.Key, m.Value)
		}
	}
}

// Finish ends the request. With an error, which is the first thing refused,
// the request is what could be put that way.
func (d *Draft) Finish() (*Request, *Error) {
	d.Close('}')
	r, err := ParseRequest(d.Bytes)
	if err != nil {
		d.Refuse("body", "%v", err)
		return &Request{}, d.refused
	}
	return r, d.refused
}
