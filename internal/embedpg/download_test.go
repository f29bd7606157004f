//go:build unix

package embedpg

import (
	"archive/tar"
	"bytes"
	"context"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDownload fetches the real archive and runs a cluster on it.
func TestDownload(t *testing.T) {
	if os.Getenv("BELFRY_TEST_DOWNLOAD") != "1" {
		t.Skip("NOT COVERED: the download of Postgres; set BELFRY_TEST_DOWNLOAD=1 to test it over the network")
	}
	ctx, cancel := context.WithTimeout(t.Context(), downloadTimeout)
	defer cancel()
	d := defaultDownload(t.TempDir(), slog.New(slog.NewTextHandler(t.Output(), nil)))
	bin, err := d.binaries(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if bin.major != downloadMajor {
		t.Errorf("it is Postgres %d, want %d", bin.major, downloadMajor)
	}
	// The second call downloads nothing.
	d.baseURL = "http://127.0.0.1:1/unreachable"
	if again, err := d.binaries(ctx); err != nil || again != bin {
		t.Errorf("from the cache: %v, %v", again, err)
	}

	dir := t.TempDir()
	server := start(t, Config{DataDir: dir, BinDir: bin.dir})
	execute(t, server.URL(), writeRow)
	stop(t, server)
	server = start(t, Config{DataDir: dir, BinDir: bin.dir})
	if got := query(t, server.URL(), readRow); got != "tenor" {
		t.Errorf("after a restart: %q", got)
	}
	stop(t, server)
}

// TestPinnedChecksumsArePublished compares the pinned checksums of all platforms with those that the repository publishes.
func TestPinnedChecksumsArePublished(t *testing.T) {
	if os.Getenv("BELFRY_TEST_DOWNLOAD") != "1" {
		t.Skip("NOT COVERED: published checksums; set BELFRY_TEST_DOWNLOAD=1 to compare them over the network")
	}
	for _, platform := range []string{"linux-amd64", "linux-arm64v8", "linux-amd64-alpine", "darwin-amd64", "darwin-arm64v8"} {
		d := download{baseURL: downloadBaseURL, platform: platform}
		response, err := http.Get(d.url() + ".sha256")
		if err != nil {
			t.Fatal(err)
		}
		var published bytes.Buffer
		_, err = published.ReadFrom(response.Body)
		closeQuietly(response.Body)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v", platform, response.Status, err)
		}
		if got := strings.TrimSpace(published.String()); got != archiveSHA256(platform) {
			t.Errorf("%s: published is %s, pinned %s", platform, got, archiveSHA256(platform))
		}
	}
}

func TestUnexpectedArchiveIsRefused(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"other content": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("malice")) },
		"not found":     http.NotFound,
	} {
		t.Run(name, func(t *testing.T) {
			repository := httptest.NewServer(answer)
			t.Cleanup(repository.Close)
			d := defaultDownload(t.TempDir(), slog.New(slog.DiscardHandler))
			d.baseURL = repository.URL
			d.sha256 = strings.Repeat("0", 64)
			if bin, err := d.binaries(t.Context()); err == nil {
				t.Fatalf("it was taken, as %v", bin)
			}
			entries, err := os.ReadDir(d.cache)
			if err != nil {
				t.Fatal(err)
			}
			for _, entry := range entries {
				if entry.IsDir() {
					t.Errorf("%s was left behind", entry.Name())
				}
			}
		})
	}
}

func TestUnknownPlatformIsSaidSo(t *testing.T) {
	d := download{cache: t.TempDir(), platform: "plan9-mips"}
	if _, err := d.binaries(t.Context()); err == nil || !strings.Contains(err.Error(), "plan9-mips") {
		t.Errorf("error = %v, want one that names the platform", err)
	}
}

func TestArchiveCannotWriteOutside(t *testing.T) {
	for name, entries := range map[string][]tar.Header{
		"parent":       {{Name: "../escaped", Typeflag: tar.TypeReg, Mode: 0o644}},
		"absolute":     {{Name: "/escaped", Typeflag: tar.TypeReg, Mode: 0o644}},
		"through link": {{Name: "link", Linkname: "..", Typeflag: tar.TypeSymlink}, {Name: "link/escaped", Typeflag: tar.TypeReg, Mode: 0o644}},
		"device":       {{Name: "escaped", Typeflag: tar.TypeBlock}},
	} {
		t.Run(name, func(t *testing.T) {
			var archive bytes.Buffer
			w := tar.NewWriter(&archive)
			for i := range entries {
				if err := w.WriteHeader(&entries[i]); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			around := t.TempDir()
			inside := filepath.Join(around, "inside")
			if err := os.Mkdir(inside, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := untar(&archive, inside); err == nil {
				t.Error("the archive was taken")
			}
			err := filepath.WalkDir(around, func(path string, _ fs.DirEntry, err error) error {
				if filepath.Base(path) == "escaped" {
					t.Errorf("it wrote %s", path)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}
