package yamlconf

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Setting is one value that holds, with where it came from.
type Setting struct {
	Path, Value, Origin string
}

// Default is the origin of what nobody set.
const Default = "default"

// Settings lists the values of a struct that a node was decoded into, defaults
// among them. What is empty and was not set is left out.
func Settings(n *Node, of any) []Setting {
	return SettingsAt(n, "", of)
}

// SettingsAt is [Settings] of a part of a document, which stands at path and may
// be missing.
func SettingsAt(n *Node, path string, of any) []Setting {
	return settings(n, path, reflect.ValueOf(of))
}

func settings(n *Node, path string, v reflect.Value) []Setting {
	if v.Type() == nodeType {
		return nil
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return settings(n, path, v.Elem())
	case reflect.Struct:
		var out []Setting
		if s, ok := reflect.TypeAssert[Short](reflect.New(v.Type())); ok && n != nil {
			n = n.long(s.ShortKey())
		}
		for _, f := range fieldsOf(v) {
			out = append(out, settings(n.Key(f.name), join(path, f.name), f.value)...)
		}
		return out
	case reflect.Map:
		var out []Setting
		if n == nil {
			return nil
		}
		for _, key := range n.keys {
			if item := v.MapIndex(reflect.ValueOf(key)); item.IsValid() {
				out = append(out, settings(n.byKey[key], join(path, key), item)...)
			}
		}
		return out
	case reflect.Slice:
		if kind := v.Type().Elem().Kind(); kind != reflect.Struct && kind != reflect.Pointer {
			break
		}
		var out []Setting
		for i := range v.Len() {
			var item *Node
			if n != nil && i < len(n.items) {
				item = n.items[i]
			}
			out = append(out, settings(item, join(path, strconv.Itoa(i)), v.Index(i))...)
		}
		return out
	default:
	}
	if n == nil && v.IsZero() {
		return nil
	}
	origin := Default
	if n != nil {
		origin = n.Origin
	}
	return []Setting{{path, show(v), origin}}
}

func show(v reflect.Value) string {
	switch v.Kind() {
	case reflect.String:
		if text := v.String(); strings.ContainsAny(text, "\n\r\t") || text == "" {
			return strconv.Quote(text)
		}
		return v.String()
	case reflect.Slice:
		items := make([]string, v.Len())
		for i := range items {
			items[i] = show(v.Index(i))
		}
		return "[" + strings.Join(items, ", ") + "]"
	default:
		if d, ok := reflect.TypeAssert[time.Duration](v); ok {
			return d.String()
		}
		return fmt.Sprint(v.Interface())
	}
}
