package storehttp

import (
	"net/http"
	"slices"
	"strings"

	"agentlightning/store"
)

// The fields that items may be sorted by, as refusals list them.
var (
	rolloutFields = strings.Fields("rollout_id input start_time end_time mode resources_id status config metadata")
	attemptFields = strings.Fields("rollout_id attempt_id sequence_id start_time end_time status worker_id " +
		"last_heartbeat_time metadata")
	spanFields = strings.Fields("rollout_id attempt_id sequence_id trace_id span_id parent_id name status attributes " +
		"events links start_time end_time context parent resource")
	resourcesFields = strings.Fields("resources_id create_time update_time version resources")
	workerFields    = strings.Fields("worker_id status heartbeat_stats last_heartbeat_time last_dequeue_time " +
		"last_busy_time last_idle_time current_rollout_id current_attempt_id")
)

// page is how a request wants its result ordered and cut.
type page struct {
	store.Paging
	sorted bool
	limit  int // as asked for, echoed in the answer
	offset int
}

// page reads the members that all lists share; by is the order without one.
func (o object) page(by string) page {
	p := page{sorted: by != "", limit: -1}
	p.SortBy = by
	if v, ok := o.get("limit"); ok {
		p.limit = int(v.int())
	}
	if v, ok := o.get("offset"); ok {
		p.offset = int(v.int())
	}
	if v, ok := o.get("sort_by"); ok {
		p.sorted = !v.null()
		p.SortBy = ""
		if p.sorted {
			p.SortBy = v.string()
		}
	}
	if v, ok := o.get("sort_order"); ok {
		p.Desc = literal(v, []string{"asc", "desc"}) == "desc"
	}
	p.Limit, p.Offset = p.limit, p.offset
	return p
}

// any reads filter_logic.
func (o object) any() bool {
	v, ok := o.get("filter_logic")
	return ok && literal(v, []string{"and", "or"}) == "or"
}

// check refuses what has the right type but makes no sense.
func (p page) check(fields []string) error {
	switch {
	case p.sorted && !slices.Contains(fields, p.SortBy):
		why := "Invalid sort_by: " + p.SortBy + ", allowed fields are: " + strings.Join(fields, ", ")
		return &refusal{http.StatusBadRequest, why}
	case p.limit == 0 || p.limit < -1:
		return &refusal{http.StatusBadRequest, "Limit must be greater than 0 or -1 for no limit"}
	case p.offset < 0:
		return &refusal{http.StatusBadRequest, "Offset must be greater than or equal to 0"}
	}
	return nil
}

// appendPage appends a page of items.
func appendPage[T any](p page, found store.Page[T], item func(*T, []byte) []byte) []byte {
	dst := append([]byte(nil), `{"items":`...)
	dst = appendItems(dst, found.Items, item)
	return p.appendEnd(dst[:len(dst)-1], found.Total)
}

// appendItems appends a list.
func appendItems[T any](dst []byte, items []T, item func(*T, []byte) []byte) []byte {
	dst = append(dst, '[')
	for i := range items {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = item(&items[i], dst)
	}
	return append(dst, ']')
}

// search runs a list route: its parameters come from the query string, or from
// the body of the search form. read gets the parameters and returns what to do
// with them once they are valid.
func (h *handler) search(c *call, lists []string, read func(object) func() answer) answer {
	var o object
	if c.Method == http.MethodGet {
		o = c.query(lists...)
	} else {
		v, given, err := c.body(h.config.MaxBody, true)
		if err != nil {
			return failed(err)
		}
		if !given {
			return c.invalid()
		}
		var ok bool
		if o, ok = v.object("model_attributes_type"); !ok {
			return c.invalid()
		}
	}
	find := read(o)
	if !c.valid() {
		return c.invalid()
	}
	return find()
}

// bodyObject reads a body that has declared members. When it returns false,
// the answer says why, or the body is optional and left out.
func (h *handler) bodyObject(c *call, required bool) (o object, given bool, refused *answer) {
	v, given, err := c.body(h.config.MaxBody, required)
	if err != nil {
		a := failed(err)
		return o, false, &a
	}
	if given {
		o, given = v.object("model_attributes_type")
	}
	if !c.valid() {
		a := c.invalid()
		return o, false, &a
	}
	return o, given, nil
}
