package quartz

import "time"

// calendar is a local time whose fields can be set one after the other, like java.util.GregorianCalendar: fields out of range
// carry over when the calendar is next read.
type calendar struct {
	zone                                   *time.Location
	year, month, day, hour, minute, second int
}

func newCalendar(at time.Time, zone *time.Location) *calendar {
	c := &calendar{zone: zone}
	c.show(at)
	return c
}

func (c *calendar) show(at time.Time) {
	t := at.In(c.zone)
	c.year, c.month, c.day = t.Year(), int(t.Month()), t.Day()
	c.hour, c.minute, c.second = t.Clock()
}

// read sets the fields to the local time of the instant that they mean.
func (c *calendar) read() { c.show(c.time()) }

func (c *calendar) time() time.Time {
	local := time.Date(c.year, time.Month(c.month), c.day, c.hour, c.minute, c.second, 0, time.UTC).Unix()
	return time.Unix(local-offsetAt(c.zone, local), 0)
}

// weekday returns the day of the week, 1 = Sunday.
func (c *calendar) weekday() int { return int(c.time().In(c.zone).Weekday()) + 1 }

// midnight sets the time of day to 0.
func (c *calendar) midnight() { c.hour, c.minute, c.second = 0, 0, 0 }

// setHour is Quartz's way to skip a gap: if the clocks do not show the hour, it takes the next one.
func (c *calendar) setHour(hour int) {
	c.hour = hour
	if c.read(); c.hour != hour && hour != 24 {
		c.hour = hour + 1
	}
}

// widestOffset exceeds every offset of a zone.
const widestOffset = 36 * 3600

// offsetAt returns the offset that Java gives to a local second.
func offsetAt(zone *time.Location, local int64) int64 {
	at := time.Unix(local-widestOffset, 0).In(zone)
	_, offset := at.Zone()
	for {
		_, end := at.ZoneBounds()
		if end.IsZero() || end.Unix() > local+widestOffset {
			return int64(offset)
		}
		if !end.After(at) { // package time may end a range too early, at the end of a year
			end = at.Add(24 * time.Hour)
		}
		_, next := end.Zone()
		if end.Unix()+int64(next) > local {
			return int64(offset)
		}
		at, offset = end, next
	}
}

func leap(year int) bool { return year%4 == 0 && year%100 != 0 || year%400 == 0 }

func daysIn(month, year int) int {
	switch month {
	case 2:
		if leap(year) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}
