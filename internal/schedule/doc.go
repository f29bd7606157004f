// Package schedule compiles a domain.Schedule and computes its fire times. Compile validates and parses it once, and Next may
// be called any number of times. The package is pure: the caller passes every instant.
//
// # Cron expressions
//
// Both dialects compile to the same form, cron: sets of seconds, minutes, hours, months and years, and a rule for the days of a
// month. Only parsing differs.
//
//   - standard is crontab(5) with optional leading seconds and the grammar of robfig/cron. Day-of-week is 0-7.
//     If neither day-of-month nor day-of-week starts with `*`, a day fires if it matches either of them. If one of
//     them starts with `*` (including `*/2`), a day must match both. `5/10` means from 5 to the end in steps of 10.
//   - quartz is the dialect of Quartz. One of day-of-month and day-of-week must be `?`. A range may wrap around (`22-2`).
//     Day-of-week is 1-7 = SUN-SAT. `31W` fires only in months that have a 31st. A step after a name, as in `SUN-FRI/2`,
//     is an error, because Quartz ignores it.
//
// # Local time
//
// An expression is fixed if the text of its hour and minute fields contains none of `*`, `/`, `-`.
//
//   - Fixed: every local second that matches stands for one instant. If the clocks show it, that is the first
//     instant at which they do. If they skip it, it is the first instant after the gap. If they skip its whole
//     date, there is none. Local seconds that stand for the same instant fire once: `* 30 2 * * *`, sixty local
//     seconds inside a gap, fires once at the end of the gap.
//   - Otherwise: the instants at which the clocks show a local second that matches. A repeated hour fires
//     twice, a skipped one not at all.
//
// The rules refer to what clocks show, so half-hour changes, changes at midnight, negative daylight saving and skipped dates
// need no special cases. A calendar's days off are removed from the resulting fire times, by the date that the clocks show at
// the fire time. Fire times are between 1970-01-01 and 2199-12-31; there are no later ones.
package schedule
