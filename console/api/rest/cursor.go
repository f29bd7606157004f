package rest

import (
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/belfryhq/belfry/console/api/problem"
	"github.com/belfryhq/belfry/internal/domain"
)

// A cursor is the packed key of the last item of a page. It grants no rights: the next page is filtered by the caller's
// rights like any other list.

// EncodeCursor packs the key of an item.
func EncodeCursor(kind, key string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(kind + ":" + key))
}

// NumberCursor packs a numeric key.
func NumberCursor(kind string, id int64) string { return EncodeCursor(kind, strconv.FormatInt(id, 10)) }

// DecodeCursor returns the key in a cursor of the given kind, "" if there is no cursor.
func DecodeCursor(kind, cursor string) (string, error) {
	if cursor == "" {
		return "", nil
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	key, ok := strings.CutPrefix(string(b), kind+":")
	if err != nil || !ok || key == "" {
		return "", BadCursor()
	}
	return key, nil
}

// DecodeNumberCursor returns the numeric key in a cursor, 0 if there is no cursor.
func DecodeNumberCursor(kind, cursor string) (int64, error) {
	key, err := DecodeCursor(kind, cursor)
	if err != nil || key == "" {
		return 0, err
	}
	id, err := strconv.ParseInt(key, 10, 64)
	if err != nil || id < 0 {
		return 0, BadCursor()
	}
	return id, nil
}

// DecodeRunCursor returns the run id in a cursor, the nil id if there is no cursor.
func DecodeRunCursor(kind, cursor string) (domain.RunID, error) {
	key, err := DecodeCursor(kind, cursor)
	if err != nil || key == "" {
		return domain.NilRunID, err
	}
	id, err := domain.ParseRunID(key)
	if err != nil {
		return domain.NilRunID, BadCursor()
	}
	return id, nil
}

// BadCursor is the error for a cursor that does not belong to the list.
func BadCursor() error { return problem.Invalid("cursor", "is not a next_cursor of this list") }
