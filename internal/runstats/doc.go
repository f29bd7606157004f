// Package runstats defines the run statistics as the REST API shows them: counts of finished runs, a time series of them, and
// the overview. Package internal/store/runstats computes the figures.
package runstats
