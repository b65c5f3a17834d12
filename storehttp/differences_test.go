package storehttp_test

import (
	"fmt"
	"net/http"
	"strings"

	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"agentlightning/internal/jsonx"
)

// notReplayed are transcripts that are not for replay.
var notReplayed = map[string]string{
	"dashboard":         "pages are not of the store protocol",
	"prometheus":        "metrics are not of the store protocol",
	"prometheus_absent": "metrics are always served",
}

// orderOpen are steps whose items may come in another order: they are sorted by
// a key that some of them share, and the protocol does not say in which order
// the spans of different attempts stand; or by ids that differ from run to run.
var orderOpen = map[string]bool{
	"spans_query/sort_start_time_null_last":       true,
	"spans_query/sort_start_time_desc_null_first": true,
	"spans_query/sort_parent_null_first":          true,
	"python_client/query_rollouts filtered":       true,
}

// difference is a step that we answer otherwise on purpose.
type difference struct {
	why string
	// check returns what is wrong with our own answer, empty for nothing.
	check func(*replayer, *step, got) string
}

// The reasons, each with what we answer instead.
var (
	unknownEntity = difference{"what does not exist is 404, not a fault of the server", checkNotFound}
	unknownIsNull = difference{"the look-up of one unknown entity is null, not a fault of the server", checkNull}
	unsortable    = difference{"a field that has no order is refused, whatever is stored", checkUnsortable}
	partial       = difference{"a span that cannot be stored is counted, the others are stored", checkPartial}
	kept          = difference{"an attribute of a foreign shape is kept as text, or left out when it has no value", checkStored}
	jsonTaken     = difference{"traces are also taken as JSON", checkJSONTaken}
	badGzip       = difference{"broken gzip is the exporter's mistake", checkBadGzip}
)

var differences = map[string]difference{
	"attempts/start_unknown_rollout":                                                    unknownEntity,
	"attempts/unknown_attempt":                                                          unknownEntity,
	"attempts/unknown_rollout":                                                          unknownEntity,
	"attempts/update_latest_without_attempts":                                           unknownEntity,
	"rollout_get_update/update_unknown":                                                 unknownEntity,
	"rollout_get_update/update_unknown_empty":                                           unknownEntity,
	"spans_add/attempt_alias_latest_not_resolved":                                       unknownEntity,
	"spans_add/unknown_attempt":                                                         unknownEntity,
	"spans_add/unknown_rollout":                                                         unknownEntity,
	"cors/error_response_has_cors":                                                      unknownIsNull,
	"rollout_get_update/get_unknown":                                                    unknownIsNull,
	"rollout_get_update/percent_encoded_id":                                             unknownIsNull,
	"resources/list_sort_resources_incomparable":                                        unsortable,
	"rollouts_query/sort_by_config":                                                     unsortable,
	"rollouts_query/sort_by_incomparable_input":                                         unsortable,
	"rollouts_query/sort_by_metadata":                                                   unsortable,
	"spans_query/sort_by_status_object":                                                 unsortable,
	"workers/sort_heartbeat_stats":                                                      unsortable,
	"otlp_traces/earlier_groups_survive_a_later_failure":                                partial,
	"otlp_traces/unknown_rollout_is_500":                                                partial,
	"otlp_traces/kvlist_attribute_is_500":                                               kept,
	"otlp_traces/mixed_array_is_500":                                                    kept,
	"otlp_traces/unset_attribute_value_is_500":                                          kept,
	"otlp_traces/json_not_supported":                                                    jsonTaken,
	"otlp_traces/json_not_supported_gzip_reply":                                         jsonTaken,
	"otlp_traces/bad_gzip":                                                              badGzip,
	"python_client/get_rollout_by_id unknown (500, health probe, one retry configured)": unknownIsNull,
}

func checkNotFound(r *replayer, s *step, g got) string {
	_, message, _ := strings.Cut(r.ours(deref(s.Response.BodyText)), `ValueError: `)
	message = strings.TrimSuffix(message, `\n"}`)
	text := string(jsonx.AppendString(nil, message))
	want := `{"detail":` + text + `,"error_type":"ValueError","traceback":"ValueError: ` + text[1:] + `}`
	return wrong(g, http.StatusNotFound, want)
}

func checkNull(_ *replayer, _ *step, g got) string { return wrong(g, http.StatusOK, "null") }

func checkUnsortable(_ *replayer, _ *step, g got) string {
	if g.status != http.StatusBadRequest || !strings.HasPrefix(string(g.body), `{"detail":"Invalid sort_by: `) {
		return fmt.Sprintf("got %d %s", g.status, g.body)
	}
	return ""
}

func checkPartial(_ *replayer, _ *step, g got) string {
	resp := ptraceotlp.NewExportResponse()
	if err := resp.UnmarshalProto(g.body); err != nil {
		return err.Error()
	}
	p := resp.PartialSuccess()
	if g.status != http.StatusOK || p.RejectedSpans() != 1 || p.ErrorMessage() != "Rollout ro-unknown not found" {
		return fmt.Sprintf("got %d, %d rejected, %q", g.status, p.RejectedSpans(), p.ErrorMessage())
	}
	return ""
}

func checkStored(_ *replayer, _ *step, g got) string { return wrong(g, http.StatusOK, "") }

func checkJSONTaken(_ *replayer, _ *step, g got) string {
	if plain, err := gunzip(g.body); err == nil {
		g.body = plain
	}
	return wrong(g, http.StatusOK, "{}")
}

func checkBadGzip(_ *replayer, _ *step, g got) string {
	if g.status != http.StatusBadRequest || !strings.Contains(string(g.body), "gzip") {
		return fmt.Sprintf("got %d %q", g.status, g.body)
	}
	return ""
}

func wrong(g got, status int, body string) string {
	if g.status != status || string(g.body) != body {
		return fmt.Sprintf("got %d %s, want %d %s", g.status, g.body, status, body)
	}
	return ""
}
