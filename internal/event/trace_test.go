package event_test

import "testing"

// An event continues the trace of its traceparent. The attribute of a CloudEvent takes precedence over the header of its transport.
func TestTraceOfEvent(t *testing.T) {
	const (
		header, attribute = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
		ofHeader          = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
		ofAttribute       = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
		structured        = "application/cloudevents+json"
		begin             = `{"specversion":"1.0","id":"1","source":"/s","type":"t"`
	)
	for _, tt := range []struct {
		name, contentType, body string
		headers                 []string
		want                    string
	}{
		{"none", "application/json", `{}`, nil, ""},
		{"a header", "application/json", `{}`, []string{"traceparent", header}, ofHeader},
		{"a faulty header", "application/json", `{}`, []string{"traceparent", "00-1"}, ""},
		{"structured", structured, begin + `,"traceparent":"` + attribute + `"}`, []string{"traceparent", header}, ofAttribute},
		{"structured, without the attribute", structured, begin + `}`, []string{"traceparent", header}, ofHeader},
		{"structured, with a faulty attribute", structured, begin + `,"traceparent":5}`, nil, ""},
		{"binary", "application/json", `{}`, []string{"ce-specversion", "1.0", "ce-id", "1", "ce-source", "/s", "ce-type", "t", "ce-traceparent", attribute, "traceparent", header}, ofAttribute},
		{"a batch", "application/cloudevents-batch+json", `[` + begin + `,"traceparent":"` + attribute + `"}]`, nil, ofAttribute},
	} {
		got, _, err := read(tt.contentType, tt.body, tt.headers...)
		if err != nil || len(got) != 1 || got[0].Trace != tt.want {
			t.Errorf("%s: %+v, %v; want trace %q", tt.name, got, err, tt.want)
		}
	}
}
