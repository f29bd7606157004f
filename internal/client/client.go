// Package client is a Go client of the REST API: typed calls, problems as errors, and the log stream.
//
// The client retries only requests that are safe to repeat: reads, and requests with an idempotency key. A client may be shared
// by goroutines.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

const (
	prefix          = "/api/v1"
	requestTimeout  = 60 * time.Second
	headerTimeout   = 30 * time.Second // also of the log stream, whose body may last for hours
	maxBodyBytes    = 64 << 20
	readTries       = 3
	firstBackoff    = 200 * time.Millisecond
	longestBackoff  = 5 * time.Second
	pageSize        = 500 // the largest page of the API
	maxProblemBytes = 1 << 20
)

// Client sends requests to one console. Create it with New.
type Client struct {
	base  *url.URL
	token string
	http  *http.Client
}

// New returns a client of the console at server, such as "http://127.0.0.1:8080". If server has no scheme, the client uses
// http. The token may be empty if the caller only calls Login.
func New(server, token string) (*Client, error) {
	if !strings.Contains(server, "://") {
		server = "http://" + server
	}
	base, err := url.Parse(strings.TrimRight(server, "/"))
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" || base.RawQuery != "" || base.Fragment != "" {
		return nil, domain.NewError(domain.Invalid, "the server's address is not a URL such as http://127.0.0.1:8080")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = headerTimeout
	return &Client{base: base, token: token, http: &http.Client{Transport: transport}}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Error is an error response of the server (a problem of RFC 9457).
type Error struct {
	Status     int
	Title      string              `json:"title"`
	Detail     string              `json:"detail"`
	Fields     []domain.FieldError `json:"errors"`
	retryAfter time.Duration
}

func (e *Error) Error() string {
	text := e.Title
	if text == "" {
		text = http.StatusText(e.Status)
	}
	if text == "" {
		text = "status " + strconv.Itoa(e.Status)
	}
	if e.Detail != "" && e.Detail != text {
		text += ": " + e.Detail
	}
	for i, f := range e.Fields {
		sep := "; "
		if i == 0 {
			sep = " ("
		}
		text += sep + f.Location + ": " + f.Message
		if i == len(e.Fields)-1 {
			text += ")"
		}
	}
	return text
}

// StatusOf returns the HTTP status of the Error in err's chain, or 0.
func StatusOf(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Status
	}
	return 0
}

// call sends a request and decodes the response into out, unless out is nil. body is nil, a json.RawMessage, or a value that
// json.Marshal encodes.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, body, out any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	tries := 1
	if method == http.MethodGet {
		tries = readTries
	}
	backoff := firstBackoff
	for try := 1; ; try++ {
		err := c.once(ctx, method, path, query, body, out)
		if err == nil || try == tries || !transient(err) {
			return err
		}
		wait := backoff
		var e *Error
		if errors.As(err, &e) && e.retryAfter > 0 {
			wait = min(e.retryAfter, longestBackoff)
		}
		if !sleep(ctx, wait) {
			return err
		}
		backoff *= 4
	}
}

// answer is like call, but returns the decoded response.
func answer[T any](ctx context.Context, c *Client, method, path string, query url.Values, body any) (T, error) {
	var out T
	err := c.call(ctx, method, path, query, body, &out)
	return out, err
}

// transient reports whether the same request may succeed a little later.
func transient(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		var malformed *json.SyntaxError
		return !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &malformed)
	}
	switch e.Status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *Client) once(ctx context.Context, method, path string, query url.Values, body, out any) error {
	resp, err := c.send(ctx, method, path, query, body, "application/json")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxBodyBytes+1))
	if err != nil {
		return fmt.Errorf("read the response of %s: %w", c.base.Host, err)
	}
	if len(data) > maxBodyBytes {
		return fmt.Errorf("the response of %s is larger than %d MiB", c.base.Host, maxBodyBytes>>20)
	}
	if out == nil || len(bytes.TrimSpace(data)) == 0 {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("decode the response of %s, which may not be a Belfry console: %w", c.base.Host, err)
	}
	return nil
}

// upload is a body that send does not encode.
type upload struct {
	contentType string
	data        []byte
}

// send sends one request. It returns the response of a success, else an *Error. The caller closes the body.
func (c *Client) send(ctx context.Context, method, path string, query url.Values, body any, accept string) (*http.Response, error) {
	var reader io.Reader
	contentType := "application/json"
	if file, ok := body.(upload); ok {
		reader, contentType = bytes.NewReader(file.data), file.contentType
	} else if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		reader = bytes.NewReader(data)
	}
	target := c.base.String() + prefix + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, reader)
	if err != nil {
		return nil, fmt.Errorf("create the request: %w", err)
	}
	req.Header.Set("Accept", accept)
	if body != nil {
		req.Header.Set("Content-Type", contentType)
	}
	if key, ok := ctx.Value(idempotencyKey{}).(string); ok {
		req.Header.Set("Idempotency-Key", key)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var e *url.Error
		if errors.As(err, &e) {
			err = e.Err // leaves out the URL, which the caller knows and which may be long
		}
		return nil, fmt.Errorf("reach %s: %w", c.base.Host, err)
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, problem(resp)
}

func problem(resp *http.Response) *Error {
	e := &Error{}
	data, _ := io.ReadAll(io.LimitReader(resp.Body, maxProblemBytes)) // the status is valid even if the body is incomplete
	if json.Unmarshal(data, e) != nil {
		*e = Error{}
	}
	e.Status = resp.StatusCode
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		e.retryAfter = time.Duration(seconds) * time.Second
	}
	return e
}

// list reads a list page by page, up to most items.
func list[T any](ctx context.Context, c *Client, path string, query url.Values, most int) ([]T, error) {
	items := []T{}
	q := url.Values{}
	for k, v := range query {
		q[k] = v
	}
	for len(items) < most {
		q.Set("limit", strconv.Itoa(min(most-len(items), pageSize)))
		var page struct {
			Items      []T    `json:"items"`
			NextCursor string `json:"next_cursor"`
		}
		if err := c.call(ctx, http.MethodGet, path, q, nil, &page); err != nil {
			return nil, err
		}
		items = append(items, page.Items...)
		if page.NextCursor == "" { // an empty page may be followed by others
			break
		}
		q.Set("cursor", page.NextCursor)
	}
	return items[:min(len(items), most)], nil
}
