package otlpgrpc

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	"agentlightning/otlp"
)

// padding is the codec of a server whose decoder refuses ids that are shorter
// than the protocol's usual: it fills them up and decodes again, as the receiver
// over HTTP does.
type padding struct{ encoding.CodecV2 }

// newCodec wraps the codec that is registered for protobuf.
func newCodec() padding { return padding{encoding.GetCodecV2("proto")} }

// Unmarshal implements [encoding.CodecV2].
func (c padding) Unmarshal(data mem.BufferSlice, v any) error {
	err := c.CodecV2.Unmarshal(data, v)
	message, ok := v.(interface{ Reset() })
	if err == nil || !ok {
		return err
	}
	padded, broken := otlp.PadIDs(data.Materialize())
	if broken != nil {
		return err
	}
	message.Reset()
	return c.CodecV2.Unmarshal(mem.BufferSlice{mem.SliceBuffer(padded)}, v)
}
