// Package layout holds no code but tests: they read the source tree and fail when it leaves the layout that
// ARCHITECTURE.md describes.
//
//   - matrix_test.go: which package may import which. A package without an entry fails too, so that a new one is
//     placed on purpose.
//   - logs_test.go: messages and keys of all log records.
//   - logs_test.go: messages and keys of all log records.
//   - limits_test.go: how many methods a type or an interface has, and how much a package exports.
//   - rules_test.go: names of packages, init functions, sleeping and skipping tests, marks of unfinished work.
//   - surface_test.go: the exported API of package executor names nothing from an internal package.
//   - api_test.go: the exported API of the SDK's module is the one in testdata/sdk.txt.
//
// Every rule is also run on a small tree that breaks it, so that none of them passes because it looks at nothing.
package layout
