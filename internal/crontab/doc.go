// Package crontab converts crontabs, in the syntax of cron(8) of Debian and cronie, into jobs for the stock executor's handler
// `command`, and reports the result for every line.
//
// # Kinds of crontab
//
// An entry of a system crontab (/etc/crontab, /etc/cron.d/*) names a user between schedule and command. An entry of a user
// crontab does not. The path determines the kind: etc/crontab, files in a directory cron.d and files below /etc are system
// crontabs. Options.Kind overrides this. A file in a directory crontabs, or directly in /var/spool/cron, is the crontab of the
// user it is named after. Any other user crontab belongs to the user that the executor runs as.
//
// # Conversion of lines
//
//   - An entry becomes a job: `sh -c command`, or the SHELL set above it. Environment lines above it go into
//     the command's environment; HOME is also its directory, and CRON_TZ is the time zone of its schedule.
//   - Runs of a job may overlap (block policy parallel) and missed ones are dropped, because cron does so.
//   - An unescaped `%` ends the command; the rest is its standard input, passed by printf.
//   - An entry of another user, `@reboot`, and a line that cron or the schedule compiler does not understand are not
//     imported. They are Problems with Kept false. A line that is imported with a change is a Problem with Kept true.
//
// # Names
//
// A job's name comes from the file's base name and the command alone, so that importing the file again, with lines moved or
// schedules edited, updates the same jobs.
package crontab
