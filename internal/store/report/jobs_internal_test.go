package report

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// slowCount counts jobs, of which there is one more each time.
type slowCount struct {
	jobs  int64
	takes time.Duration
	reads int
	err   error
}

func (s *slowCount) read(ctx context.Context) (map[string]JobCount, error) {
	s.reads++
	s.jobs++
	jobs, err := s.jobs, s.err
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return map[string]JobCount{"g": {Jobs: jobs, Enabled: 1}}, err
}

func TestJobCountsOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowCount{jobs: 1_000_000, takes: 200 * time.Millisecond}
		c := newJobCounter(s.read)
		look := func(what string, want int64, waits time.Duration) {
			t.Helper()
			start := time.Now()
			got, err := c.counts(t.Context())
			if err != nil || got["g"].Jobs != 1_000_000+want || time.Since(start) != waits {
				t.Errorf("%s: %v after %s, %v; want %d after %s", what, got, time.Since(start), err, want, waits)
			}
		}
		// Whoever asks first may go away; those who wait with it get the answer all the same.
		gone, leave := context.WithCancel(t.Context())
		left := make(chan error)
		go func() { _, err := c.counts(gone); left <- err }()
		synctest.Wait()
		leave()
		if err := <-left; err == nil {
			t.Error("who left got an answer")
		}
		done := make(chan bool)
		for range 3 {
			go func() { look("all at once", 1, 200*time.Millisecond); done <- true }()
		}
		for range 3 {
			<-done
		}
		time.Sleep(3900 * time.Millisecond)
		look("within twenty times as long", 1, 0)
		time.Sleep(200 * time.Millisecond)
		look("after that, while it is counted", 1, 0)
		look("which is done once", 1, 0)
		time.Sleep(300 * time.Millisecond)
		look("and then", 2, 0)
		if s.reads != 2 {
			t.Errorf("counted %d times", s.reads)
		}
		time.Sleep(2 * time.Minute)
		look("what nobody has looked at for long", 3, 200*time.Millisecond)

		s.err = errors.New("the database is away")
		time.Sleep(5 * time.Second)
		look("as long as there is something to show", 3, 0)
		time.Sleep(2 * time.Minute)
		if _, err := c.counts(t.Context()); !errors.Is(err, s.err) {
			t.Errorf("numbers of two minutes ago: %v", err)
		}
		s.err = nil
		s.takes = 5 * time.Second
		look("it is back", 6, 5*time.Second)
		time.Sleep(31 * time.Second)
		look("no number is used for long", 6, 0)
		time.Sleep(6 * time.Second)
		look("however long it took", 7, 0)
	})
}

func TestJobCountsOfFewAreAlwaysFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowCount{jobs: countedAnew - 3, takes: time.Second}
		c := newJobCounter(s.read)
		for i := range 4 {
			got, err := c.counts(t.Context())
			if want := int64(countedAnew - 2 + i); err != nil || got["g"].Jobs != want {
				t.Errorf("%v, %v, want %d", got, err, want)
			}
		}
		if got, err := c.counts(t.Context()); err != nil || got["g"].Jobs != countedAnew+1 {
			t.Errorf("more than few: %v, %v", got, err)
		}
	})
}
