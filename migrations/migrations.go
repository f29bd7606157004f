// Package migrations contains the SQL files that create Belfry's schema, in order. The files are append-only: the statements of a released file
// never change. Each file is safe to run while the previous binary still uses the database.
//
// A migration that breaks binaries older than the previous release, for example because it drops a column that they read, raises
// schema_needs.min_binary to the number of the newest migration of the oldest release that still works. Older binaries then refuse to
// start: see store.Schema. It must never exceed the newest migration of the previous release.
package migrations

import (
	"embed"
	"strconv"
	"strings"
)

// Schema is the Postgres schema of Belfry's tables. River's tables are in RiverSchema.
const (
	Schema      = "belfry"
	RiverSchema = "river"
)

// FS contains the migrations in goose's format.
//
//go:embed *.sql
var FS embed.FS

// Newest returns the number of the newest migration.
func Newest() (newest int64) {
	files, err := FS.ReadDir(".")
	if err != nil {
		panic("migrations: " + err.Error()) // an embedded directory can be read
	}
	for _, f := range files {
		number, _, _ := strings.Cut(f.Name(), "_")
		if n, err := strconv.ParseInt(number, 10, 64); err == nil {
			newest = max(newest, n)
		}
	}
	return newest
}
