package executor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
)

// TestStoppedRunsSayItOnce verifies that a message does not repeat why the handler's context was cancelled.
func TestStoppedRunsSayItOnce(t *testing.T) {
	tests := []struct {
		err, cause error
		message    string
	}{
		{ErrTimeout, ErrTimeout, "timeout after 2s"},
		{context.DeadlineExceeded, ErrTimeout, "timeout after 2s"},
		{RetryAfter(Permanent(context.Canceled), time.Second), ErrTimeout, "timeout after 2s"},
		{errors.New("half is written"), ErrTimeout, "timeout after 2s: half is written"},
		{fmt.Errorf("dial: %w", context.DeadlineExceeded), ErrTimeout, "timeout after 2s: dial: context deadline exceeded"},
		{nil, ErrTimeout, "the timeout of 2s had passed when the handler returned without an error"},
		{ErrDrained, ErrDrained, "cancelled because its executor shut down"},
		{errors.New("half is written"), ErrDrained, "cancelled because its executor shut down: half is written"},
		{context.Canceled, nil, "context canceled"},
	}
	for _, tt := range tests {
		end := ending{err: tt.err}
		if tt.err != nil {
			end.text = tt.err.Error()
		}
		var res wire.Result
		end.describe(tt.cause, "", 2*time.Second, &res)
		if res.Message != tt.message {
			t.Errorf("%v for %v: %q, want %q", tt.err, tt.cause, res.Message, tt.message)
		}
	}
}

func TestConfigNamesAllFaults(t *testing.T) {
	_, err := New(Config{Group: "A b", Instance: "a.b", Capacity: -1, SpoolBytes: 1, Labels: map[string]string{"": ""}})
	for _, field := range []string{"NATSURL", "Group", "Instance", "Capacity", "SpoolBytes", "Labels"} {
		if err == nil || !strings.Contains(err.Error(), "Config."+field) {
			t.Errorf("%s is not named in: %v", field, err)
		}
	}
}
