package openapi

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
)

// Operation is one method of one path.
type Operation struct {
	Method, Path string // with parameters in braces
	Tag, Summary string
	// In and Out are types, empty for none; Query are members.
	In, Out, Query string
	Status         int
	// InType and OutType are media types; empty means JSON.
	InType, OutType string
	Open            bool // asks for no token
	Failure         string
}

// Document is what there is to call.
type Document struct {
	Title, Version, Description string
	Operations                  []Operation
	Schemas                     map[string]Schema
}

type object = map[string]any

// JSON returns the document, indented so that differences can be read.
func (d *Document) JSON() ([]byte, error) {
	paths := map[string]object{}
	for i := range d.Operations {
		o := &d.Operations[i]
		if paths[o.Path] == nil {
			paths[o.Path] = object{}
		}
		paths[o.Path][strings.ToLower(o.Method)] = o.json()
	}
	return json.MarshalIndent(object{
		"openapi":       "3.1.0",
		"info":          object{"title": d.Title, "version": d.Version},
		"x-description": d.Description,
		"paths":         paths,
		"security": []object{
			{"bearer": []string{}}, {"apiKey": []string{}}, {"basic": []string{}},
		},
		"components": object{
			"schemas": d.Schemas,
			"securitySchemes": object{
				"bearer": object{"type": "http", "scheme": "bearer"},
				"basic":  object{"type": "http", "scheme": "basic", "description": "the token is the password"},
				"apiKey": object{"type": "apiKey", "in": "header", "name": "X-Api-Key"},
			},
		},
	}, "", "  ")
}

func (o *Operation) json() object {
	out := object{"summary": o.Summary, "operationId": o.id(), "tags": []string{o.Tag}}
	if o.Open {
		out["security"] = []object{}
	}
	parameters := []object{}
	for _, name := range pathParameters.FindAllStringSubmatch(o.Path, -1) {
		parameters = append(parameters, object{"name": name[1], "in": "path", "required": true, "schema": Type("string")})
	}
	for _, f := range fields(o.Query) {
		parameters = append(parameters, object{"name": f.name, "in": "query", "required": !f.optional, "schema": Type(f.word)})
	}
	if len(parameters) > 0 {
		out["parameters"] = parameters
	}
	if o.In != "" {
		in, optional := strings.CutSuffix(o.In, "?")
		out["requestBody"] = object{"required": !optional, "content": content(in, o.InType)}
	}
	success := object{"description": "success"}
	if o.Out != "" {
		success["content"] = content(o.Out, o.OutType)
	}
	answers := object{strconv.Itoa(o.Status): success}
	if o.Failure != "" {
		answers["default"] = object{"description": "a refusal or a fault", "content": content(o.Failure, "")}
	}
	out["responses"] = answers
	return out
}

func content(word, media string) object {
	if media == "" {
		media = "application/json"
	}
	return object{media: object{"schema": Type(word)}}
}

var (
	pathParameters = regexp.MustCompile(`\{([a-z_]+)\}`)
	notInID        = regexp.MustCompile(`[^a-zA-Z0-9]+`)
)

// id is a name that generators of clients can use: it is unique as method and
// path are.
func (o *Operation) id() string {
	return strings.ToLower(o.Method) + "_" + strings.Trim(notInID.ReplaceAllString(o.Path, "_"), "_")
}
