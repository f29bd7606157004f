// Package migrations holds the SQL that makes Belfry's schema, in order. Files are append-only: a released one
// never changes, and each is safe to run while the previous binary still works on the database.
package migrations

import "embed"

// Schema is the Postgres schema that holds Belfry's tables; River's stand in RiverSchema.
const (
	Schema      = "belfry"
	RiverSchema = "river"
)

// FS holds the migrations in goose's format.
//
//go:embed *.sql
var FS embed.FS
