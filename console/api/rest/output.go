package rest

import (
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belfryhq/belfry/internal/domain"
)

// Output is an answer that consists of a body.
type Output[T any] struct{ Body T }

// Answer returns an answer with the body.
func Answer[T any](body T) *Output[T] { return &Output[T]{body} }

// Page is the answer of every list.
type Page[T any] struct {
	Items      []T    `json:"items" nullable:"false"`
	NextCursor string `json:"next_cursor" doc:"The cursor of the next page; empty on the last page"`
}

// Cut returns at most limit items. If there are more, the page has the cursor after its last item.
func Cut[T any](items []T, limit int, cursor func(T) string) Page[T] {
	if len(items) <= limit {
		return Page[T]{Items: items}
	}
	items = items[:limit]
	return Page[T]{Items: items, NextCursor: cursor(items[limit-1])}
}

// Each returns the results of the function to for each element. The result is never nil.
func Each[T, U any](in []T, to func(T) U) []U {
	out := make([]U, len(in))
	for i, v := range in {
		out[i] = to(v)
	}
	return out
}

// Accepted lists the runs that an action planned or applies to.
type Accepted struct {
	RunIDs []domain.RunID `json:"run_ids" nullable:"false"`
}

// Streamed is an answer that is written piece by piece.
type Streamed struct{ Body func(huma.Context) }

// ETag returns the ETag of a version.
func ETag(version int) string { return strconv.Quote(strconv.Itoa(version)) }

// TextResponse describes an answer that is text.
func TextResponse(contentType, description string) map[string]*huma.Response {
	return map[string]*huma.Response{"200": {Description: description,
		Content: map[string]*huma.MediaType{contentType: {Schema: &huma.Schema{Type: huma.TypeString}}}}}
}
