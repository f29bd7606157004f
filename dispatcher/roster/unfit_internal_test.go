package roster

import (
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/explain"
)

func TestNotOffered(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		name   string
		change func(*instance)
		want   explain.Code
		text   string
	}{
		{"room", func(*instance) {}, "", ""},
		{"draining by its heartbeat", func(i *instance) { i.beat.Draining = true }, explain.InstanceDraining, "draining"},
		{"draining by its answer", func(i *instance) { i.load.Draining = true }, explain.InstanceDraining, "draining"},
		{"no handlers", func(i *instance) { i.beat.Handlers = nil }, explain.InstanceOffersNothing, "neither"},
		{"scripts only", func(i *instance) { i.beat.Handlers, i.beat.Languages = nil, []string{"sh"} }, "", ""},
		{"silent", func(i *instance) { i.seen = now.Add(-8 * time.Second) }, explain.InstanceSilent, "8s old"},
		{"full", func(i *instance) { i.load.Running = 4 }, explain.InstanceFull, "4 of its 4"},
		{"offered", func(i *instance) { i.load.Running, i.offered = 1, 3 }, explain.InstanceFull, "4 of its 4"},
		{"refused", func(i *instance) { i.shunned, i.refused = now.Add(time.Hour), "no_handler" }, explain.InstanceRefused, "no_handler"},
		{"refused before", func(i *instance) { i.shunned, i.refused = now.Add(-time.Hour), "no_handler" }, "", ""},
		{"out of files", func(i *instance) { i.beat.Unfit = &wire.Unfit{Reason: "out_of_files", Message: "60 of 64"} }, explain.InstanceOutOfFiles, "60 of 64"},
		{"spool full", func(i *instance) { i.beat.Unfit = &wire.Unfit{Reason: "spool_full", Message: "no space"} }, explain.InstanceSpoolFull, "no space"},
		{"spool unwritable", func(i *instance) { i.beat.Unfit = &wire.Unfit{Reason: "spool_unwritable", Message: "read-only"} }, explain.InstanceSpoolUnwritable, "read-only"},
		{"another reason", func(i *instance) { i.beat.Unfit = &wire.Unfit{Reason: "no_license", Message: "expired"} }, explain.InstanceUnfit, "no_license: expired"},
		{"draining with a trouble", func(i *instance) { i.beat.Draining, i.beat.Unfit = true, &wire.Unfit{Reason: "spool_full"} }, explain.InstanceDraining, "draining"},
	} {
		i := instance{beat: wire.Heartbeat{Beat: 1, Handlers: []string{"echo"}}, load: wire.Load{Capacity: 4}, seen: now}
		tt.change(&i)
		why := i.notOffered(now)
		if (why == nil) != (tt.want == "") || why != nil && (why.Code != tt.want || !strings.Contains(why.Text, tt.text)) {
			t.Errorf("%s: %+v", tt.name, why)
		}
	}
}

func TestTroubleIsBounded(t *testing.T) {
	long := strings.Repeat("é\x00", 1000)
	e := trouble(&wire.Unfit{Reason: long, Message: long}).Explanation()
	reason, message := e.Args["reason"].(string), e.Args["message"].(string)
	if e.Code != explain.InstanceUnfit || len(reason) > reasonMax || len(message) > wire.MaxUnfitMessage || strings.Contains(e.Text, "\x00") {
		t.Errorf("%d and %d bytes: %q", len(reason), len(message), e.Text)
	}
}
