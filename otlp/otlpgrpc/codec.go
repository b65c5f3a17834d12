package otlpgrpc

import (
	"fmt"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"agentlightning/otlp"
)

// request is the message of a call.
type request struct{ traces ptrace.Traces }

// codec reads a [request] and writes an [otlp.Rejected], as the receiver over
// HTTP does. It keeps nothing of the bytes that it is given.
type codec struct{}

// Name is what the content type of calls names, if anything.
func (codec) Name() string { return "proto" }

// Unmarshal reads a *request.
func (codec) Unmarshal(data []byte, message any) (err error) {
	in, ok := message.(*request)
	if !ok {
		return fmt.Errorf("message of type %T", message)
	}
	in.traces, err = otlp.Unmarshal(data)
	return err
}

// Marshal writes an *otlp.Rejected.
func (codec) Marshal(message any) ([]byte, error) {
	out, ok := message.(*otlp.Rejected)
	if !ok {
		return nil, fmt.Errorf("message of type %T", message)
	}
	return out.MarshalProto(), nil
}
