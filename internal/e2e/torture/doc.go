// Package torture is the test of the whole that docs/torture.md tells of: real processes, jobs of every kind, a nemesis
// that does to them whatever can be done, and the judgement of package checker upon what came of it.
package torture
