// Package layout contains only tests. They read the source tree and fail if it deviates from the layout that ARCHITECTURE.md
// describes.
//
//   - matrix_test.go: which package may import which. A package without an entry fails too, so that the position of a new
//     package is a decision.
//   - logs_test.go: messages and keys of all log records.
//   - limits_test.go: the number of methods of a type or an interface, and of exported names of a package.
//   - rules_test.go: names of packages, init functions, tests that sleep or skip, marks of unfinished work.
//   - surface_test.go: the exported API of package executor uses no type of an internal package.
//   - api_test.go: the exported API of the SDK's module equals testdata/sdk.txt.
//
// Each rule is also tested with a small tree that breaks it, so that no rule passes only because it checks nothing.
package layout
