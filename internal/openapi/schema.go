// Package openapi writes OpenAPI documents from tables: schemas are one line
// each, routes one struct each.
//
// A type is written as a word: string, integer, number, boolean, object, any, or
// the name of a schema; []T is a list of T, T? is T or null. The members of an
// object are a list of name:type, and name=:type for one that may be left out:
//
//	openapi.Object("rollout_id:string worker_id=:string? tags=:[]string")
package openapi

import (
	"fmt"
	"strings"
)

// Schema is a JSON schema.
type Schema map[string]any

// Type returns the schema of a type that is written as a word.
func Type(word string) Schema {
	if inner, ok := strings.CutSuffix(word, "?"); ok {
		return Schema{"anyOf": []Schema{Type(inner), {"type": "null"}}}
	}
	if inner, ok := strings.CutPrefix(word, "[]"); ok {
		return Schema{"type": "array", "items": Type(inner)}
	}
	switch word {
	case "any":
		return Schema{}
	case "string", "integer", "number", "boolean", "object":
		return Schema{"type": word}
	}
	return Schema{"$ref": "#/components/schemas/" + word}
}

// Object returns the schema of an object with these members.
func Object(members string) Schema {
	properties, required := map[string]Schema{}, []string{}
	for _, m := range fields(members) {
		properties[m.name] = Type(m.word)
		if !m.optional {
			required = append(required, m.name)
		}
	}
	s := Schema{"type": "object", "properties": properties}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

// Enum returns the schema of one of these words.
func Enum[T ~string](words ...T) Schema { return Schema{"type": "string", "enum": words} }

// Page returns the schema of a part of a list.
func Page(item string) Schema {
	return Object("items:[]" + item + " limit:integer offset:integer total:integer")
}

type field struct {
	name, word string
	optional   bool
}

func fields(list string) []field {
	var out []field
	for part := range strings.FieldsSeq(list) {
		name, word, ok := strings.Cut(part, ":")
		if !ok {
			panic(fmt.Sprintf("openapi: member %q has no type", part)) //nolint:forbidigo // a table of ours is wrong
		}
		name, optional := strings.CutSuffix(name, "=")
		out = append(out, field{name, word, optional})
	}
	return out
}
