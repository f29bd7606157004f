// Package quartz computes the fire times that org.quartz.CronExpression computes, for the releases that XXL-JOB uses: 2.3.2,
// 2.5.0 and 2.5.2. It reproduces the behaviour of these releases, including their faults, so that an import can show the fire times
// of both systems and name each difference. The schedules of Belfry itself use package internal/schedule.
//
// # Why it follows the original step by step
//
// Several of Quartz's answers depend on the path of its calculation: which field it advances first, at which times of day a
// weekday rule resets the clock, and how java.util.GregorianCalendar resolves local times that do not exist or exist twice. A
// declarative description of the same answers would have more exceptions than rules. So the package has the same loop, on a
// calendar with the same lenient arithmetic. A test compares it with the three releases in one JVM, on random expressions.
//
// # Local time
//
// A local time in a gap takes the offset before the gap, so it lies after the gap. A local time that exists twice is its second
// occurrence. Both follow from one rule: the offset is that of the last transition whose local time, in the new offset, is not
// later.
//
// Quartz is licensed under the Apache License 2.0, as this project is. XXL-JOB contains a copy of Quartz's class. This
// package does not use that copy.
package quartz
