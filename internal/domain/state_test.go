package domain

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestTransitions compares transitions with a written-out table: rows are from, columns to, in the order of States.
func TestTransitions(t *testing.T) {
	table := map[State]string{
		//           pqrR SFCX
		Pending:   ".q.. .fcx",
		Queued:    "p.rR sfcx",
		Running:   ".q.R sfc.",
		Retrying:  ".q.. .fc.",
		Succeeded: ".... ....",
		Failed:    ".... ....",
		Cancelled: ".... ....",
		Skipped:   ".... ....",
	}
	if len(table) != len(States) {
		t.Fatalf("%d states in the table, %d in States", len(table), len(States))
	}
	for _, from := range States {
		row := strings.ReplaceAll(table[from], " ", "")
		for i, to := range States {
			if want := row[i] != '.'; from.CanBecome(to) != want {
				t.Errorf("%s → %s: %v, want %v", from, to, !want, want)
			}
		}
		if from.Final() != (strings.Trim(row, ".") == "") {
			t.Errorf("%s: Final is %v, which contradicts its transitions", from, from.Final())
		}
		if from.CanBecome(from) {
			t.Errorf("%s → %s is in the table, want no transition to itself", from, from)
		}
	}
	if State("odd").Final() || State("odd").CanBecome(Queued) {
		t.Error("an unknown state has transitions")
	}
}

func TestChildOnMatches(t *testing.T) {
	for on, want := range map[ChildOn][]State{
		OnSuccess: {Succeeded}, OnFailure: {Failed}, OnAlways: {Succeeded, Failed, Cancelled, Skipped}, "odd": nil,
	} {
		var got []State
		for _, s := range States {
			if on.Matches(s) {
				got = append(got, s)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s matches %v, want %v", on, got, want)
		}
	}
}

func TestBackoff(t *testing.T) {
	b := RetryBackoff{Initial: Duration(time.Second), Factor: 2, Max: Duration(10 * time.Second)}
	tests := []struct {
		attempt int
		random  float64
		want    time.Duration
	}{
		{1, 0.5, time.Second}, {2, 0.5, 2 * time.Second}, {3, 0.5, 4 * time.Second}, {4, 0.5, 8 * time.Second},
		{5, 0.5, 10 * time.Second}, {101, 0.5, 10 * time.Second}, {1, 0, 900 * time.Millisecond}, {5, 0, 9 * time.Second},
	}
	for _, tt := range tests {
		if got := b.Backoff(tt.attempt, tt.random); got.Round(time.Microsecond) != tt.want {
			t.Errorf("attempt %d, random %v: %s, want %s", tt.attempt, tt.random, got, tt.want)
		}
	}
	for random := 0.0; random < 1; random += 0.01 {
		if d := b.Backoff(1, random); d < 900*time.Millisecond || d >= 1100*time.Millisecond {
			t.Errorf("random %v: %s is not within 10%%", random, d)
		}
	}
	largest := RetryBackoff{Initial: Duration(24 * time.Hour), Factor: 100, Max: Duration(7 * 24 * time.Hour)}
	if d := largest.Backoff(100, 0.999); d <= 0 || d > 8*24*time.Hour {
		t.Errorf("the largest backoff: got %s", d)
	}
	if d := (RetryBackoff{Initial: Duration(time.Minute), Factor: 1, Max: Duration(time.Second)}).Backoff(1, 0.5); d != time.Second {
		t.Errorf("initial above max: %s", d)
	}
}

func TestErrors(t *testing.T) {
	cause := errors.New("cause")
	e := &Error{Code: Invalid, Message: "no", Fields: []FieldError{{"a", "x"}, {"b", "y"}}, Err: cause}
	if got := e.Error(); got != "no: a: x; b: y: cause" {
		t.Errorf("%q", got)
	}
	if !errors.Is(e, cause) || CodeOf(fmt.Errorf("around: %w", e)) != Invalid || CodeOf(cause) != Internal {
		t.Error("the error lacks its cause or code")
	}
	var f Faults
	if f.Err("m") != nil {
		t.Error("Err without faults returned an error")
	}
	f.AddAll("at", nil)
	f.AddAll("at", cause)
	f.AddAll("other", e)
	var got *Error
	if !errors.As(f.Err("m"), &got) || got.Code != Invalid || !slices.Equal(got.Fields, []FieldError{{"at", "cause"}, {"a", "x"}, {"b", "y"}}) {
		t.Errorf("%+v", got)
	}
}
