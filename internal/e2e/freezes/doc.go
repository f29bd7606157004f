// Package freezes tests that no attempt starts after it was declared lost. It freezes executors by SIGSTOP while they hold
// attempts that they have accepted and not started yet, and compares what their handlers noted with what Postgres holds.
//
// TestFreezes runs Belfry's processes and many executors, in Go and in Python, under a load of jobs. FREEZES is the number of
// freezes of 11 to 20 s, long enough for a death verdict; the default is 12. FREEZES_SEED repeats the random choices of a printed
// seed.
package freezes
