package checker

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// fireTimes returns the fire times of a version's schedule within [from, to], in Unix milliseconds. It supports the schedules of the
// fault test: cron expressions that restrict only seconds and minutes, in zones that are whole hours from UTC; fixed_rate; once. The
// fire times of the other kinds do not follow from the schedule alone.
func fireTimes(v *Version, from, to time.Time) ([]int64, error) {
	s := &v.Spec.Schedule
	if s.StartAt != nil && s.StartAt.After(from) {
		from = s.StartAt.Time
	}
	if s.EndAt != nil && s.EndAt.Before(to) {
		to = s.EndAt.Time
	}
	first, last := from.UnixMilli(), to.UnixMilli()
	switch s.Kind {
	case domain.ScheduleNone, domain.ScheduleFixedDelay:
		return nil, nil
	case domain.ScheduleOnce:
		if at := s.At.UnixMilli(); at >= first && at <= last {
			return []int64{at}, nil
		}
		return nil, nil
	case domain.ScheduleFixedRate:
		anchor := v.CreatedAt.UnixMilli()
		if s.StartAt != nil {
			anchor = s.StartAt.UnixMilli()
		}
		return grid(anchor, s.Every.Std().Milliseconds(), first, last), nil
	case domain.ScheduleCron:
		return cronTimes(s.Expr, first, last)
	}
	return nil, fmt.Errorf("schedules of kind %q are not supported", s.Kind)
}

func grid(anchor, every, first, last int64) []int64 {
	k := int64(0)
	if first > anchor {
		k = (first - anchor + every - 1) / every
	}
	var out []int64
	for at := anchor + k*every; at <= last; at += every {
		out = append(out, at)
	}
	return out
}

func cronTimes(expr string, first, last int64) ([]int64, error) {
	fields := strings.Fields(expr)
	if len(fields) != 6 {
		return nil, fmt.Errorf("cron %q: only expressions with seconds are supported", expr)
	}
	for _, f := range fields[2:] {
		if f != "*" && f != "?" {
			return nil, fmt.Errorf("cron %q: only seconds and minutes are supported", expr)
		}
	}
	seconds, err := sixty(fields[0])
	if err != nil {
		return nil, fmt.Errorf("cron %q: %w", expr, err)
	}
	minutes, err := sixty(fields[1])
	if err != nil {
		return nil, fmt.Errorf("cron %q: %w", expr, err)
	}
	var out []int64
	for sec := (first + 999) / 1000; sec*1000 <= last; sec++ {
		if seconds[sec%60] && minutes[sec/60%60] {
			out = append(out, sec*1000)
		}
	}
	return out, nil
}

// sixty parses a field of seconds or minutes.
func sixty(field string) (set [60]bool, err error) {
	for part := range strings.SplitSeq(field, ",") {
		span, stepText, stepped := strings.Cut(part, "/")
		lo, hi, step := 0, 59, 1
		if stepped {
			if step, err = strconv.Atoi(stepText); err != nil || step < 1 {
				return set, fmt.Errorf("the step of %q", part)
			}
		}
		if a, b, ranged := strings.Cut(span, "-"); span != "*" {
			if lo, err = strconv.Atoi(a); err != nil {
				return set, fmt.Errorf("the number %q", part)
			}
			switch {
			case ranged:
				if hi, err = strconv.Atoi(b); err != nil {
					return set, fmt.Errorf("the range %q", part)
				}
			case !stepped:
				hi = lo
			}
		}
		if lo < 0 || hi > 59 || lo > hi {
			return set, fmt.Errorf("the field %q", field)
		}
		for i := lo; i <= hi; i += step {
			set[i] = true
		}
	}
	return set, nil
}
