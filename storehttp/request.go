package storehttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"agentlightning/internal/jsonx"
)

// call is one request on its way through a route.
type call struct {
	*http.Request
	params [2]string // of the path, in order
	form   form
	raw    []byte // the body, once read
}

// answer is what a route gives back: JSON, or a refusal.
type answer struct {
	status int
	body   []byte
	err    error
	// undo takes back what was done when the answer cannot be delivered.
	undo func(context.Context)
	// list takes the place of the body.
	list *list
	// stream takes the place of the body: it writes as long as it likes.
	stream func(context.Context, http.ResponseWriter)
	// header is one more header field, name and value.
	header [2]string
}

func ok(body []byte) answer      { return answer{status: http.StatusOK, body: body} }
func created(body []byte) answer { return answer{status: http.StatusCreated, body: body} }
func failed(err error) answer    { return answer{err: err} }

// invalid is the answer to a request that failed validation.
func (c *call) invalid() answer {
	return answer{status: http.StatusUnprocessableEntity, body: c.form.appendJSON(nil)}
}

// valid reports whether nothing was found wrong so far.
func (c *call) valid() bool { return len(c.form.problems) == 0 }

var bodyPlace = &place{name: "body"}

// body reads the JSON body. Without one, ok is false: a problem was reported
// when the body is required, and an optional one is simply not there.
func (c *call) body(limit int64, required bool) (v value, ok bool, err error) {
	raw, err := c.read(limit, nil)
	if err != nil {
		return v, false, err
	}
	return c.parse(raw, required)
}

// read reads the text of the body, into a buffer if one is given.
func (c *call) read(limit int64, into []byte) ([]byte, error) {
	var err error
	c.raw, err = readAll(c.Body, c.ContentLength, limit, into)
	switch tooLarge := (*http.MaxBytesError)(nil); {
	case err == nil:
	case errors.As(err, &tooLarge):
		return nil, tooLargeBody(tooLarge.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, os.ErrDeadlineExceeded
	default:
		return nil, errDisconnected
	}
	raw := bytes.TrimPrefix(c.raw, []byte("\xef\xbb\xbf"))
	if !utf8.Valid(raw) {
		return nil, &refusal{http.StatusBadRequest, "There was an error parsing the body"}
	}
	return raw, nil
}

// parse makes a value of the text of the body, as [call.body] does.
func (c *call) parse(raw []byte, required bool) (v value, ok bool, err error) {
	v = value{form: &c.form, at: bodyPlace}
	if len(raw) == 0 {
		if required {
			c.form.report("missing", bodyPlace, "Field required", nil)
		}
		return v, false, nil
	}
	if !isJSON(c.Header.Get("Content-Type")) {
		v.raw = jsonx.AppendString(nil, string(raw))
		return v, true, nil
	}
	if err := jsonx.Check(raw); err != nil {
		c.malformed(err)
		return v, false, nil
	}
	v.raw = bytes.TrimSpace(raw)
	if !required && v.null() {
		return v, false, nil
	}
	return v, true, nil
}

func tooLargeBody(limit int64) error {
	return &refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf(
		"the body is longer than the %d bytes that this server takes; send it in smaller parts", limit)}
}

// readAll reads a body of the length that its header announces, if it does.
func readAll(r io.Reader, announced, limit int64, into []byte) ([]byte, error) {
	const most = 1 << 20 // of what a header is believed
	switch {
	case announced > limit:
		return nil, &http.MaxBytesError{Limit: limit}
	case announced < 0 || announced > most:
		b := bytes.NewBuffer(into[:0])
		_, err := b.ReadFrom(http.MaxBytesReader(nil, io.NopCloser(r), limit))
		return b.Bytes(), err
	}
	// One byte more, so that the end is seen, which the server waits for.
	b := slices.Grow(into[:0], int(announced)+1)[:announced+1]
	n, err := io.ReadFull(r, b)
	if n == int(announced) && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
		err = nil
	}
	return b[:n], err
}

func (c *call) malformed(err error) {
	offset, text := 0, err.Error()
	if syntax := (*jsonx.SyntaxError)(nil); errors.As(err, &syntax) {
		offset, text = syntax.Offset, pythonSyntax(syntax.Msg)
		if syntax.Msg == invalidUnicode {
			offset++ // behind the backslash
		}
	}
	c.form.problems = append(c.form.problems, problem{
		kind: "json_invalid", at: bodyPlace.element(offset), msg: "JSON decode error", input: []byte("{}"),
		ctx: append(jsonx.AppendString([]byte(`{"error":`), text), '}'),
	})
}

const invalidUnicode = `invalid \u escape`

// pythonSyntax words a syntax error as the protocol does.
func pythonSyntax(msg string) string {
	switch msg {
	case "expected a value", "invalid number", "unexpected end":
		return "Expecting value"
	case "expected a string":
		return "Expecting property name enclosed in double quotes"
	case "expected ':'":
		return "Expecting ':' delimiter"
	case "expected ',' or '}'", "expected ',' or ']'":
		return "Expecting ',' delimiter"
	case "extra data":
		return "Extra data"
	case "unterminated string":
		return "Unterminated string starting at"
	case "control character in a string":
		return "Invalid control character at"
	case "invalid escape":
		return `Invalid \escape`
	case invalidUnicode:
		return `Invalid \uXXXX escape`
	}
	return msg
}

func isJSON(contentType string) bool {
	if contentType == "application/json" { // what nearly all send
		return true
	}
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil && kind == "" {
		return false
	}
	sub, found := strings.CutPrefix(kind, "application/")
	return found && (sub == "json" || strings.HasSuffix(sub, "+json"))
}

var queryPlace = &place{name: "query"}

// query turns the query string into an object, so that its parameters are read
// as the members of a body are: one that is named in lists becomes a list,
// of the others the last one counts.
func (c *call) query(lists ...string) object {
	values := parseQuery(c.URL.RawQuery)
	o := object{value: value{form: &c.form, at: queryPlace}, missing: []byte("null")}
	for key, given := range values {
		raw := []byte(nil)
		if slices.Contains(lists, key) {
			raw = append(raw, '[')
			for i, s := range given {
				if i > 0 {
					raw = append(raw, ',')
				}
				raw = jsonx.AppendString(raw, s)
			}
			raw = append(raw, ']')
		} else {
			raw = jsonx.AppendString(raw, given[len(given)-1])
		}
		o.members = append(o.members, jsonx.Member{Key: key, Value: raw})
	}
	return o
}

// parseQuery is [url.ParseQuery] without its refusals: a semicolon is text, and
// so is an escape that is none.
func parseQuery(raw string) url.Values {
	values := url.Values{}
	for param := range strings.SplitSeq(raw, "&") {
		if param == "" {
			continue
		}
		key, v, _ := strings.Cut(param, "=")
		key = unescapeQuery(key)
		values[key] = append(values[key], unescapeQuery(v))
	}
	return values
}

func unescapeQuery(s string) string {
	plain, err := url.QueryUnescape(s)
	if err != nil {
		return strings.ReplaceAll(s, "+", " ")
	}
	return plain
}
