package event_test

import (
	"encoding/json"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/event"
	"github.com/belfryhq/belfry/internal/event/match"
)

// FuzzRead checks that each event that Read accepts has its name and JSON data, and that Decide can evaluate it.
func FuzzRead(f *testing.F) {
	f.Add("orders.created", "application/json", "", "", `{"a": 1}`)
	f.Add("a", "application/cloudevents+json", "", "", `{"specversion":"1.0","id":"1","source":"/s","type":"t","time":"2026-03-29T01:30:00Z","data":[1]}`)
	f.Add("a", "application/cloudevents-batch+json", "", "", `[{"specversion":"1.0","id":"1","source":"/s","type":"t"}]`)
	f.Add("a", "text/plain", "1.0", "%41", "hello")
	trigger := match.Compile(1, 1, &event.TriggerSpec{Name: ">", JobID: 1, Enabled: true, Filter: `event.data.a == 1`, Param: `{{json .event}}`})
	f.Fuzz(func(t *testing.T, name, contentType, version, id, body string) {
		headers := map[string]string{"content-type": contentType, "ce-specversion": version, "ce-id": id, "ce-source": id, "ce-type": id, "ce-time": id}
		events, _, err := event.Read(name, func(h string) string { return headers[h] }, []byte(body))
		if err != nil {
			return
		}
		for i := range events {
			e := &events[i]
			if e.Name != name || !event.Matches(">", name) || !json.Valid(e.Data) || !utf8.Valid(e.Data) {
				t.Fatalf("took %+v", e)
			}
			e.Digest()
			match.Decide(t.Context(), match.NewView(domain.NewRunID(time.Unix(0, 0)), e), []*match.Compiled{trigger})
		}
	})
}
