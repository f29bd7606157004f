//go:build unix

package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

// curl implements the part of the command curl that the pages use, for machines without curl.
func curl() int {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "", http.NoBody)
	if err != nil {
		return 1
	}
	for args := os.Args[1:]; len(args) > 0; args = args[1:] {
		switch a := args[0]; {
		case a == "-s":
		case a == "-H" && len(args) > 1:
			name, value, _ := strings.Cut(args[1], ":")
			req.Header.Set(name, strings.TrimSpace(value))
			args = args[1:]
		case a == "-d" && len(args) > 1:
			req.Method, req.Body, req.ContentLength = http.MethodPost, io.NopCloser(strings.NewReader(args[1])), int64(len(args[1]))
			args = args[1:]
		default:
			if req.URL, err = req.URL.Parse(a); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 3
			}
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 7
	}
	defer resp.Body.Close()
	if _, err := io.Copy(os.Stdout, resp.Body); err != nil {
		return 18
	}
	return 0
}
