// Package faulttest injects faults into a whole Belfry of real processes with jobs of every kind. Afterwards package checker checks
// whether Belfry kept its promises. See docs/fault-test.md.
package faulttest
