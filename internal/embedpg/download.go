package embedpg

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/xi2/xz"
)

const (
	downloadMajor   = 17
	downloadVersion = "17.11.0"
	downloadBaseURL = "https://repo1.maven.org/maven2/io/zonky/test/postgres"

	maxArchiveBytes  = 256 << 20
	maxUnpackedBytes = 1 << 30
	downloadTimeout  = 10 * time.Minute
)

// archiveSHA256 returns the checksum of the archive for a platform, or "". The checksums are pinned here, so that
// neither the repository nor an attacker in between can replace the programs.
func archiveSHA256(platform string) string {
	switch platform {
	case "linux-amd64":
		return "0dd7b72b6f335b8ecfb355fa24c5781e8a93edd09880bb77eb52ebbf29b3e96d"
	case "linux-arm64v8":
		return "8b042e0ea418b1927d95399207950da0734d27fe01e29503ade3bdc464ad4c2b"
	case "linux-amd64-alpine":
		return "ace9a6f95b1c98ce84c9841267cd04ebee5d7de5dc7b8fea148ead44f145afbd"
	case "darwin-amd64":
		return "d464ff178e9860ba204662ac23fa547504b7fd392392ff2fb92e3fd73b5bdb64"
	case "darwin-arm64v8":
		return "a1c2786acb0c398f9b2d76806fc52f5dc8b222cbc8e9383a9b9702084daaf3a5"
	default:
		return ""
	}
}

// download fetches the binaries that the embedded-postgres-binaries project publishes on Maven Central. The Go library
// embedded-postgres fetches the same archives, but only as a part of starting a server in a way that root cannot use,
// and it accepts an archive whose checksum it cannot get.
type download struct {
	log      *slog.Logger
	cache    string // directory for all versions
	baseURL  string
	platform string
	sha256   string
}

func defaultDownload(cache string, log *slog.Logger) download {
	platform := platformName()
	return download{log: log, cache: cache, baseURL: downloadBaseURL, platform: platform, sha256: archiveSHA256(platform)}
}

func platformName() string {
	platform := runtime.GOOS + "-" + runtime.GOARCH
	if runtime.GOARCH == "arm64" {
		platform += "v8"
	}
	if _, err := os.Stat("/etc/alpine-release"); err == nil {
		platform += "-alpine"
	}
	return platform
}

// binaries returns the cached copy. If there is none, it downloads it first.
func (d download) binaries(ctx context.Context) (binaries, error) {
	if d.sha256 == "" {
		return binaries{}, fmt.Errorf("no Postgres (%d or newer) is installed, and there is none to download for %s", minMajor, d.platform)
	}
	// The name contains the checksum, so that another archive never reuses an older copy.
	dir := filepath.Join(d.cache, fmt.Sprintf("postgres-%s-%s-%.12s", downloadVersion, d.platform, d.sha256))
	if err := os.MkdirAll(d.cache, 0o755); err != nil {
		return binaries{}, fmt.Errorf("create the directory for the downloaded Postgres: %w", err)
	}
	lock, err := waitLock(ctx, dir+".lock")
	if err != nil {
		return binaries{}, fmt.Errorf("wait for another process to download Postgres: %w", err)
	}
	defer closeQuietly(lock)

	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := d.fetchInto(ctx, dir); err != nil {
			return binaries{}, fmt.Errorf("no Postgres (%d or newer) is installed; download Postgres %s: %w", minMajor, downloadVersion, err)
		}
	} else if err != nil {
		return binaries{}, err
	}
	return inspect(ctx, filepath.Join(dir, "bin"))
}

func (d download) url() string {
	return fmt.Sprintf("%[1]s/embedded-postgres-binaries-%[2]s/%[3]s/embedded-postgres-binaries-%[2]s-%[3]s.jar", d.baseURL, d.platform, downloadVersion)
}

// fetchInto creates dir atomically: completely or not at all.
func (d download) fetchInto(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	url := d.url()
	d.log.Info("no Postgres is installed, downloading it once", "url", url)
	archive, err := d.fetch(ctx, url)
	if err != nil {
		return err
	}
	fresh := dir + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	if err := os.Mkdir(fresh, 0o755); err != nil {
		return err
	}
	if err := unpack(archive, fresh); err != nil {
		return errors.Join(fmt.Errorf("unpack %s: %w", url, err), os.RemoveAll(fresh))
	}
	return os.Rename(fresh, dir)
}

// fetch returns the archive if its checksum is correct.
func (d download) fetch(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer closeQuietly(response.Body)
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s", url, response.Status)
	}
	archive, err := io.ReadAll(io.LimitReader(response.Body, maxArchiveBytes))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", url, err)
	}
	if sum := sha256.Sum256(archive); hex.EncodeToString(sum[:]) != d.sha256 {
		return nil, fmt.Errorf("%s has the SHA-256 checksum %x, expected %s", url, sum, d.sha256)
	}
	return archive, nil
}

// unpack extracts the tree inside the archive, a jar around a .txz, into dir.
func unpack(archive []byte, dir string) error {
	jar, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		return err
	}
	for _, file := range jar.File {
		if !strings.HasSuffix(file.Name, ".txz") {
			continue
		}
		compressed, err := file.Open()
		if err != nil {
			return err
		}
		defer closeQuietly(compressed)
		plain, err := xz.NewReader(compressed, 0)
		if err != nil {
			return err
		}
		return untar(io.LimitReader(plain, maxUnpackedBytes), dir)
	}
	return errors.New("there is no .txz file in it")
}

// untar extracts into dir. os.Root refuses every name and link that leads out of it.
func untar(from io.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer closeQuietly(root)
	for entries := tar.NewReader(from); ; {
		entry, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := writeEntry(root, entry, entries); err != nil {
			return fmt.Errorf("write %s: %w", entry.Name, err)
		}
	}
}

func writeEntry(root *os.Root, entry *tar.Header, content io.Reader) error {
	name := path.Clean(entry.Name)
	if name == "." {
		return nil
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	switch entry.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, 0o755)
	case tar.TypeSymlink:
		return root.Symlink(entry.Linkname, name)
	case tar.TypeReg:
		file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fs.FileMode(entry.Mode)&0o755|0o444)
		if err != nil {
			return err
		}
		_, err = io.Copy(file, content)
		return errors.Join(err, file.Close())
	default:
		return fmt.Errorf("unexpected type %q", entry.Typeflag)
	}
}
