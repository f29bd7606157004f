package api

import (
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/belfryhq/belfry/internal/domain"
)

// A cursor is the key of the last item shown, packed so that clients take it as it is. It grants nothing: the list
// that it goes on with is filtered by the caller's rights as any other.

func encodeCursor(kind, key string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(kind + ":" + key))
}

func numberCursor(kind string, id int64) string { return encodeCursor(kind, strconv.FormatInt(id, 10)) }

// decodeCursor returns the key in a cursor of the given kind, empty for no cursor.
func decodeCursor(kind, cursor string) (string, error) {
	if cursor == "" {
		return "", nil
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	key, ok := strings.CutPrefix(string(b), kind+":")
	if err != nil || !ok || key == "" {
		return "", badCursor()
	}
	return key, nil
}

func decodeNumberCursor(kind, cursor string) (int64, error) {
	key, err := decodeCursor(kind, cursor)
	if err != nil || key == "" {
		return 0, err
	}
	id, err := strconv.ParseInt(key, 10, 64)
	if err != nil || id < 0 {
		return 0, badCursor()
	}
	return id, nil
}

func badCursor() error { return invalidField("cursor", "is not a next_cursor of this list") }

func invalidField(location, message string) error {
	return &domain.Error{Code: domain.Invalid, Message: "the request is not valid",
		Fields: []domain.FieldError{{Location: location, Message: message}}}
}
