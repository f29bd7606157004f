// Package ui serves the web console: a single page application, whose built files lie in dist and are part of the
// binary. Its sources are beside this file; docs/console.md says how to build them.
package ui

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
)

//go:embed all:dist
var built embed.FS

// noncePlace stands in the built page where each answer has a nonce of its own.
const noncePlace = "__BELFRY_NONCE__"

// file is a built file, as it is and compressed.
type file struct {
	content, gzipped []byte
	contentType      string
	etag             string
}

// Handler serves the console's files. Every path that names no file gets the page, which finds its own way from
// there, except below /assets, where a missing file is one of another version.
//
// Files have the hash of their content in their names, and may be kept for ever; the page is asked for each time.
func Handler() http.Handler {
	files, page := load()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(path.Clean(r.URL.Path), "/")
		if f, ok := files[name]; ok {
			serveFile(w, r, f, strings.HasPrefix(name, "assets/"))
			return
		}
		if name == "assets" || strings.HasPrefix(name, "assets/") {
			http.NotFound(w, r)
			return
		}
		servePage(w, page)
	})
}

func load() (files map[string]file, page []byte) {
	files = map[string]file{}
	err := fs.WalkDir(built, "dist", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := built.ReadFile(name)
		if err != nil {
			return err
		}
		name = strings.TrimPrefix(name, "dist/")
		if name == "index.html" {
			page = content
			return nil
		}
		sum := sha256.Sum256(content)
		files[name] = file{content: content, gzipped: compress(content), contentType: mimeType(name),
			etag: `"` + hex.EncodeToString(sum[:12]) + `"`}
		return nil
	})
	if err != nil {
		panic("ui: " + err.Error()) // the files are in the binary
	}
	return files, page
}

// mimeType does not ask the machine for what it thinks of an extension.
func mimeType(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	if t := mime.TypeByExtension(path.Ext(name)); t != "" {
		return t
	}
	return "application/octet-stream"
}

// compress returns nil where compression gains nothing.
func compress(content []byte) []byte {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		panic("ui: " + err.Error()) // the level is a constant
	}
	w.Write(content) //nolint:errcheck // into memory
	w.Close()        //nolint:errcheck // into memory
	if b.Len() >= len(content) {
		return nil
	}
	return b.Bytes()
}

func serveFile(w http.ResponseWriter, r *http.Request, f file, hashed bool) {
	h := w.Header()
	h.Set("ETag", f.etag)
	h.Set("Vary", "Accept-Encoding")
	h.Set("Cache-Control", "no-cache")
	if hashed {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	if strings.Contains(r.Header.Get("If-None-Match"), f.etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	content := f.content
	if f.gzipped != nil && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		content = f.gzipped
	}
	h.Set("Content-Type", f.contentType)
	h.Set("Content-Length", strconv.Itoa(len(content)))
	w.Write(content) //nolint:errcheck // the client is gone
}

// servePage answers with the page. Scripts may come from files alone. The components add style elements while they
// run, which need the nonce; the policy holds for elements that the page's own script makes, too.
func servePage(w http.ResponseWriter, page []byte) {
	nonce := rand.Text()
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-"+nonce+"'; "+
		"img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'")
	w.Write(bytes.ReplaceAll(page, []byte(noncePlace), []byte(nonce))) //nolint:errcheck // the client is gone
}
