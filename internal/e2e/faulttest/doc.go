// Package faulttest injects faults into a Belfry cluster of real processes that runs jobs of every kind. Afterwards package
// checker checks whether Belfry kept its promises. See docs/fault-test.md.
package faulttest
