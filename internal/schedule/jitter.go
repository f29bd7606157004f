package schedule

import (
	"fmt"
	"math"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// compileJitter requires the jitter to be below the smallest gap between fires, so that due instants keep the order of
// fire times. If another field is faulty, there is no gap, and only that field's error is reported.
func (s *Schedule) compileJitter(in domain.Schedule, o Options, f *domain.Faults) {
	const field = "schedule.jitter"
	s.jitter = in.Jitter.Std()
	gap := time.Duration(math.MaxInt64)
	switch {
	case s.jitter == 0:
		return
	case s.jitter < 0:
		f.Add(field, "must not be negative")
		return
	case s.jitter%time.Millisecond != 0:
		f.Add(field, fmt.Sprintf("is %s; use whole milliseconds", s.jitter))
		return
	case s.kind == domain.ScheduleNone || s.kind == domain.ScheduleOnce:
		if s.jitter > MaxFreeJitter {
			f.Add(field, fmt.Sprintf("is %s; at most %s is allowed", s.jitter, MaxFreeJitter))
		}
		return
	case s.every > 0:
		gap = s.every
	case s.delay > 0:
		gap = s.delay
	case s.cron != nil && s.jitter >= time.Second: // cron fires on whole seconds
		gap = s.cron.smallestGap(s.zone, gapSearchStart(in, o).Unix())
	}
	if s.jitter >= gap {
		f.Add(field, fmt.Sprintf("is %s; it must be shorter than the smallest gap between fires, which is %s", s.jitter, gap))
	}
}

// gapSearchStart excludes clock changes from long before the job existed.
func gapSearchStart(in domain.Schedule, o Options) time.Time {
	switch {
	case !o.CreatedAt.IsZero():
		return o.CreatedAt
	case in.StartAt != nil:
		return in.StartAt.Time
	}
	return time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
}

// gapSearchSeconds is how far ahead clock changes are examined: 30 years, after which all combinations of weekdays,
// dates and changes have occurred.
const gapSearchSeconds = 30 * 366 * 86400

// smallestGap returns the smallest gap between fire times after the Unix second from, or less, but never more. Away
// from clock changes, the gap follows from local time. At a change, only the first fire after it can be closer to its
// neighbors than local time indicates.
func (c *cron) smallestGap(zone *time.Location, from int64) time.Duration {
	from = min(max(from, firstSecond), endSecond)
	gap := c.smallestLocalGap(time.Unix(from, 0).UTC().Year())
	end := min(from+gapSearchSeconds, endSecond)
	for sec := from; sec < end; {
		offset, _, to := span(zone, sec)
		if to >= end {
			break
		}
		if after, _, _ := span(zone, to); after != offset {
			gap = c.gapAround(zone, to, gap)
		}
		sec = to
	}
	if gap > math.MaxInt64/int64(time.Second) {
		return math.MaxInt64
	}
	return time.Duration(gap) * time.Second
}

// gapAround returns the minimum of gap and the gaps next to the first fire at or after change, in seconds.
func (c *cron) gapAround(zone *time.Location, change, gap int64) int64 {
	first, ok := c.next(zone, change-1)
	if !ok {
		return gap
	}
	if following, ok := c.next(zone, first); ok {
		gap = min(gap, following-first)
	}
	for sec := max(first-gap, firstSecond); ; {
		previous, ok := c.next(zone, sec-1)
		if !ok || previous >= first {
			return gap
		}
		gap = min(gap, first-previous)
		sec = previous + 1
	}
}

// smallestLocalGap returns the smallest number of seconds between two matching local seconds from the year on.
func (c *cron) smallestLocalGap(year int) int64 {
	first, _ := c.timeAt(0)
	gap, last := int64(math.MaxInt64), first
	for {
		next, ok := c.timeAt(last + 1)
		if !ok {
			break
		}
		gap = min(gap, int64(next-last))
		if last = next; gap == 1 {
			return gap
		}
	}
	if days := c.smallestDayGap(year); days > 0 {
		gap = min(gap, days*86400-int64(last-first))
	}
	return gap
}

// smallestDayGap returns the smallest number of days between two matching days, or 0 if there are no two.
func (c *cron) smallestDayGap(year int) int64 {
	var gap, last int64
	for local := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC).Unix(); gap != 1; {
		match, ok := c.nextLocal(local)
		if !ok {
			break
		}
		day := match / 86400
		if last != 0 && (gap == 0 || day-last < gap) {
			gap = day - last
		}
		last = day
		local = (day + 1) * 86400
	}
	return gap
}
