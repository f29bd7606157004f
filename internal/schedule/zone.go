package schedule

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"
)

var zoneName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_+-]{0,31}(/[A-Za-z0-9][A-Za-z0-9_+-]{0,31}){0,3}$`)

// loadZone loads an IANA zone by name. It checks the pattern first because time.LoadLocation opens files: no path may
// get through. posix/ and right/ are directories next to the zone names, the latter with leap seconds.
func loadZone(name string) (*time.Location, error) {
	switch {
	case len(name) > 64:
		return nil, errors.New("is too long for the name of a time zone; use an IANA name such as Europe/Berlin")
	case strings.EqualFold(name, "local"):
		return nil, errors.New("\"Local\" would mean another zone on every machine; use an IANA name such as Europe/Berlin")
	case zoneName.MatchString(name) && !strings.HasPrefix(name, "posix") && !strings.HasPrefix(name, "right/"):
		if z, err := time.LoadLocation(name); err == nil {
			return z, nil
		}
	}
	if hint := similarZone(name); hint != "" {
		return nil, fmt.Errorf("%q is not a known time zone; did you mean %s?", name, hint)
	}
	return nil, fmt.Errorf("%q is not a known time zone; use an IANA name such as Europe/Berlin or Asia/Shanghai", name)
}

// similarZone suggests a zone for a wrong name: an offset, wrong capitals, a bare city.
func similarZone(name string) string {
	if m := regexp.MustCompile(`^(?i:UTC|GMT)?([+-])0?(\d{1,2})(:?00)?$`).FindStringSubmatch(name); m != nil {
		sign := "+"
		if m[1] == "+" {
			sign = "-"
		}
		// POSIX counts offsets to the west, so the sign of these names is reversed.
		if exists("Etc/GMT" + sign + m[2]) {
			return "Etc/GMT" + sign + m[2] + " (its sign is the reverse), or better the name of a place"
		}
	}
	tidy := capitalise(strings.ReplaceAll(strings.TrimSpace(name), " ", "_"))
	if !zoneName.MatchString(tidy) || strings.HasPrefix(strings.ToLower(name), "posix") {
		return ""
	}
	candidates := []string{tidy, strings.ToUpper(tidy)}
	city := tidy[strings.LastIndexByte(tidy, '/')+1:]
	for _, area := range []string{"Africa", "America", "Antarctica", "Asia", "Atlantic", "Australia", "Europe", "Indian", "Pacific"} {
		candidates = append(candidates, area+"/"+city)
	}
	for _, c := range candidates {
		if c != name && c != "LOCAL" && c != "Local" && exists(c) {
			return c
		}
	}
	return ""
}

func exists(name string) bool {
	_, err := time.LoadLocation(name)
	return err == nil
}

// capitalise writes a name in the form of zone names: NEW_york becomes New_York.
func capitalise(s string) string {
	b := []byte(strings.ToLower(s))
	for i := range b {
		if (i == 0 || b[i-1] == '/' || b[i-1] == '_' || b[i-1] == '-') && 'a' <= b[i] && b[i] <= 'z' {
			b[i] -= 'a' - 'A'
		}
	}
	return string(b)
}

// In this package, a local second is the time that a zone's clocks show, counted like a Unix time.

// widestTurn is greater than the difference between any two offsets of a zone, and between any offset and UTC.
const widestTurn = 30 * 3600

// span returns the offset of zone at the Unix second sec, and a range [from, to) around sec in which it is constant.
// The range may end although the offset does not change.
func span(zone *time.Location, sec int64) (offset, from, to int64) {
	t := time.Unix(sec, 0).In(zone)
	_, seconds := t.Zone()
	start, end := t.ZoneBounds()
	from, to = math.MinInt64, math.MaxInt64
	if !start.IsZero() {
		from = start.Unix()
	}
	if !end.IsZero() {
		to = end.Unix()
	}
	if to <= sec {
		// Package time counts every year beyond its table as 365 days, so that on the last day of a leap year (in UTC)
		// its range ends before sec. The offset is constant until the end of the year at least.
		to = (sec/86400 + 1) * 86400
	}
	return int64(seconds), from, to
}

// highestLocal returns the latest local second that the clocks of zone have shown up to and including sec. During a
// repeated hour, that is the end of its first pass.
func highestLocal(zone *time.Location, sec int64) int64 {
	offset, from, _ := span(zone, sec)
	highest := sec + offset
	for from > sec-widestTurn {
		last := from - 1
		offset, from, _ = span(zone, last)
		highest = max(highest, last+offset)
	}
	return highest
}

// firstAtOrPast returns the first Unix second at which the clocks of zone show local or later: the first occurrence of
// local if it exists, otherwise the first instant after the gap.
func firstAtOrPast(zone *time.Location, local int64) int64 {
	for sec := local - widestTurn; ; {
		offset, _, to := span(zone, sec)
		if hit := max(sec, local-offset); hit < to {
			return hit
		}
		sec = to
	}
}

// dateShown reports whether the clocks of zone ever show the date of local.
func dateShown(zone *time.Location, local int64) bool {
	day := floorDay(local)
	sec := firstAtOrPast(zone, day)
	offset, _, _ := span(zone, sec)
	return sec+offset < day+86400
}

// floorDay returns the first local second of the date of local.
func floorDay(local int64) int64 {
	return local - (local%86400+86400)%86400
}
