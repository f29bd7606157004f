// Package ui serves the web console, which is a single page application. Its built files are in dist and are part of the
// binary. Its sources are in the same directory as this file; docs/console.md describes how to build them.
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

// noncePlace is the placeholder in the built page. Each answer has its own nonce in its place.
const noncePlace = "__BELFRY_NONCE__"

// file is a built file, uncompressed and compressed.
type file struct {
	content, gzipped []byte
	contentType      string
	etag             string
}

// Handler serves the web console's files. For a path without a file, the answer is the page, whose script shows the content for
// the path. Below /assets a missing file is a 404, because it belongs to another version.
//
// Browsers may cache assets forever, because the names contain a hash of the content. They request the page each time.
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
	z, err := gzip.NewWriterLevel(nil, gzip.BestCompression)
	if err != nil {
		panic("ui: " + err.Error()) // the level is a constant
	}
	err = fs.WalkDir(built, "dist", func(name string, d fs.DirEntry, err error) error {
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
		files[name] = file{content: content, gzipped: compress(z, content), contentType: mimeType(name),
			etag: `"` + hex.EncodeToString(sum[:12]) + `"`}
		return nil
	})
	if err != nil {
		panic("ui: " + err.Error()) // the files are in the binary
	}
	return files, page
}

// mimeType returns the content type of a file. For common extensions it does not use the configuration of the machine.
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

// compress returns nil if the compressed form is not smaller.
func compress(z *gzip.Writer, content []byte) []byte {
	var b bytes.Buffer
	z.Reset(&b)
	z.Write(content) //nolint:errcheck // into memory
	z.Close()        //nolint:errcheck // into memory
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

// servePage answers with the page. Its policy allows scripts only from files. The components add style elements at run time.
// These need the nonce, because the policy also applies to elements that the page's own script adds.
func servePage(w http.ResponseWriter, page []byte) {
	nonce := rand.Text()
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-"+nonce+"'; "+
		"img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'")
	w.Write(bytes.ReplaceAll(page, []byte(noncePlace), []byte(nonce))) //nolint:errcheck // the client is gone
}
