package waiting

import "testing"

// signalled reports whether a channel has a signal, and takes it.
func signalled(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A run that begins to wait wakes the assigner of its process, or those of other processes if none runs here.
func TestWake(t *testing.T) {
	k := NewKinds()
	for _, step := range []struct {
		what            string
		do              func()
		here, elsewhere bool
	}{
		{"a wake without an assigner", k.Wake, false, true},
		{"another process's signal without an assigner", k.Heard, false, false},
		{"a wake with an assigner", func() { k.Assign(true); k.Wake() }, true, false},
		{"another process's signal", k.Heard, true, false},
		{"the end of an assigner that has received all", func() { k.Assign(false) }, false, false},
		{"the end of an assigner before it has received a wake", func() { k.Assign(true); k.Wake(); k.Assign(false) }, false, true},
	} {
		step.do()
		if here, elsewhere := signalled(k.Woken()), signalled(k.Elsewhere()); here != step.here || elsewhere != step.elsewhere {
			t.Errorf("%s: signalled here %v, elsewhere %v", step.what, here, elsewhere)
		}
	}
}
