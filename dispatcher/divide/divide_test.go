package divide

import (
	"errors"
	"slices"
	"testing"
)

func TestBatch(t *testing.T) {
	bad, away := errors.New("bad"), errors.New("away")
	for _, tt := range []struct {
		name        string
		n           int
		bad         []int
		away        int // the server is away when this item is in the batch; -1: never
		done, alone []int
		err         error
	}{
		{"nothing", 0, nil, -1, nil, nil, nil},
		{"all good", 3, nil, -1, []int{0, 1, 2}, nil, nil},
		{"one bad", 5, []int{3}, -1, []int{0, 1, 2, 4}, []int{3}, nil},
		{"the first and the last", 4, []int{0, 3}, -1, []int{1, 2}, []int{0, 3}, nil},
		{"all bad", 3, []int{0, 1, 2}, -1, nil, []int{0, 1, 2}, nil},
		{"only one", 1, []int{0}, -1, nil, []int{0}, nil},
		{"the server goes away meanwhile", 4, []int{1}, 3, nil, nil, away},
	} {
		t.Run(tt.name, func(t *testing.T) {
			items := make([]int, tt.n)
			for i := range items {
				items[i] = i
			}
			var done, alone []int
			err := Batch(items, func(err error) bool { return errors.Is(err, bad) }, func(part []int) error {
				switch {
				case slices.Contains(part, tt.away):
					return away
				case slices.ContainsFunc(part, func(i int) bool { return slices.Contains(tt.bad, i) }):
					return bad
				}
				done = append(done, part...)
				return nil
			}, func(i int, err error) error {
				alone = append(alone, i)
				return nil
			})
			if !errors.Is(err, tt.err) || !slices.Equal(done, tt.done) || !slices.Equal(alone, tt.alone) {
				t.Errorf("done %v, alone %v, error %v", done, alone, err)
			}
		})
	}
}

func TestErrorOfAloneEndsTheBatch(t *testing.T) {
	bad, stop := errors.New("bad"), errors.New("stop")
	calls := 0
	err := Batch([]int{1, 2}, func(err error) bool { return errors.Is(err, bad) }, func([]int) error { return bad }, func(int, error) error {
		calls++
		return stop
	})
	if !errors.Is(err, stop) || calls != 1 {
		t.Errorf("%d calls, error %v", calls, err)
	}
}
