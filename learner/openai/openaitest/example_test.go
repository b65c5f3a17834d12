package openaitest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"agentlightning/learner/openai/openaitest"
)

func ExampleRefuse() {
	w := httptest.NewRecorder()
	openaitest.Refuse(w, http.StatusTooManyRequests, "rate_limit_exceeded", "Slow down.")
	fmt.Println(w.Code, w.Body)
	// Output: 429 {"error":{"code":"rate_limit_exceeded","message":"Slow down.","param":null,"type":"invalid_request_error"}}
}
