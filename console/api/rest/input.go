package rest

import (
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/belfryhq/belfry/console/api/problem"
	"github.com/belfryhq/belfry/console/api/strict"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
)

// JSONBody is embedded by the inputs of operations with a body. Embedded inputs are exported because huma ignores
// unexported ones.
type JSONBody struct {
	ContentType string `header:"Content-Type" hidden:"true"`
	RawBody     []byte `contentType:"application/json"`
}

// Decode decodes the body strictly over dst. If it fails, dst still gets the fields that have no fault.
func (b *JSONBody) Decode(dst any) error {
	if err := b.Check(); err != nil {
		return err
	}
	_, err := strict.Decode(b.RawBody, dst)
	return err
}

// Check refuses a body that is not declared as JSON. A browser does not send JSON to another site without a preflight
// request, so a form on another site cannot make a change.
func (b *JSONBody) Check() error {
	if !IsJSON(b.ContentType) {
		return problem.New(http.StatusUnsupportedMediaType, "the body must be application/json",
			domain.FieldError{Location: "Content-Type", Message: "must be application/json"})
	}
	return nil
}

// IsJSON reports whether a content type is JSON or absent.
func IsJSON(contentType string) bool {
	if contentType == "" {
		return true
	}
	t, _, err := mime.ParseMediaType(contentType)
	return err == nil && (t == "application/json" || strings.HasSuffix(t, "+json"))
}

// Reader is embedded by the inputs of operations whose answer has texts in the reader's language.
type Reader struct {
	Accepted string `header:"Accept-Language" doc:"The language of descriptions, notes and explanations: en (default) or zh-CN"`
}

// Language is the language that the reader prefers.
func (r *Reader) Language() explain.Language { return explain.Preferred(r.Accepted) }

// List is embedded by the inputs of lists.
type List struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"50" doc:"The maximum number of items"`
	Cursor string `query:"cursor" doc:"next_cursor of the previous page"`
}

// IDPath names a resource with a numeric id in the path.
type IDPath struct {
	ID int64 `path:"id" minimum:"1"`
}

// JobObject names a job in the audit log.
func JobObject(id domain.JobID) string { return fmt.Sprintf("job/%d", id) }

// JobPath names a job in the path.
type JobPath struct {
	ID domain.JobID `path:"id" minimum:"1"`
}

// RunPath names a run in the path.
type RunPath struct {
	ID domain.RunID `path:"id" format:"uuid"`
}

// Conditional is embedded by the inputs of changes that may name the version to change.
type Conditional struct {
	IfMatch string `header:"If-Match" doc:"The ETag of the version to change. If it is not the current version, the answer is 409"`
}

// Match returns the version in If-Match, 0 for any. An ETag is the version in quotes.
func (c Conditional) Match() (int, error) {
	s := strings.TrimSpace(c.IfMatch)
	if s == "" || s == "*" {
		return 0, nil
	}
	v, err := strconv.Atoi(strings.Trim(strings.TrimPrefix(s, "W/"), `"`))
	if err != nil || v < 1 {
		return 0, problem.Invalid("If-Match", `must be a version, such as "3"`)
	}
	return v, nil
}

// OneVersion returns the version to change, from the header or the body, 0 for any.
func OneVersion(c Conditional, inBody int) (int, error) {
	version, err := c.Match()
	switch {
	case err != nil:
		return 0, err
	case inBody < 0:
		return 0, problem.Invalid("version", "must not be negative")
	case version != 0 && inBody != 0 && version != inBody:
		return 0, problem.Invalid("version", "must be the same version as in If-Match")
	}
	return max(version, inBody), nil
}

const maxKeyChars = 255

// KeyRule describes a valid idempotency key.
const KeyRule = "must be 1 to 255 printable ASCII characters"

// ValidKey reports whether an idempotency key is valid.
func ValidKey(key string) bool {
	return len(key) <= maxKeyChars && !strings.ContainsFunc(key, func(c rune) bool { return c < ' ' || c > '~' })
}
