// Command release prepares a release of both modules: it writes the SDK's version into go.mod and go.work of the root, and the
// SDK's hash into go.sum. Run it in the root of a clean tree:
//
//	go run ./internal/modules/release v0.1.0
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/sumdb/dirhash"

	"github.com/belfryhq/belfry/internal/modules"
)

const sdk = modules.SDK

func main() {
	if len(os.Args) != 2 || semver.Canonical(os.Args[1]) != os.Args[1] {
		fmt.Fprintln(os.Stderr, "usage: release vX.Y.Z")
		os.Exit(2)
	}
	if err := prepare(".", os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
	fmt.Printf("commit go.mod, go.work and go.sum, then tag that commit %s and %s/%s\n", os.Args[1], modules.SDKDir, os.Args[1])
}

// prepare updates the three files below root.
func prepare(root, version string) error {
	sums, err := hashes(root, version)
	if err != nil {
		return err
	}
	return errors.Join(
		edit(filepath.Join(root, "go.mod"), func(text []byte) ([]byte, error) { return requireSDK(text, version) }),
		edit(filepath.Join(root, "go.work"), func(text []byte) ([]byte, error) { return replaceSDK(text, version) }),
		edit(filepath.Join(root, "go.sum"), func(text []byte) ([]byte, error) { return writeSums(text, sums), nil }),
	)
}

func edit(name string, change func([]byte) ([]byte, error)) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	changed, err := change(text)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return os.WriteFile(name, changed, 0o644)
}

// requireSDK returns a go.mod that requires the SDK in this version.
func requireSDK(text []byte, version string) ([]byte, error) {
	f, err := modfile.Parse("go.mod", text, nil)
	if err != nil {
		return nil, err
	}
	if err := f.AddRequire(sdk, version); err != nil {
		return nil, err
	}
	return f.Format()
}

// replaceSDK returns a go.work that replaces this version of the SDK, and no other.
func replaceSDK(text []byte, version string) ([]byte, error) {
	f, err := modfile.ParseWork("go.work", text, nil)
	if err != nil {
		return nil, err
	}
	for _, r := range f.Replace {
		if r.Old.Path == sdk { // edit it in place, so that its comment stays
			r.Syntax.Token[slices.Index(r.Syntax.Token, r.Old.Version)] = version
		}
	}
	return modfile.Format(f.Syntax), nil
}

// hashes returns the lines of go.sum for the SDK in the working tree at root.
func hashes(root, version string) ([]string, error) {
	file, err := os.CreateTemp("", "belfry-sdk-*.zip")
	if err != nil {
		return nil, err
	}
	defer func() {
		file.Close()
		_ = os.Remove(file.Name()) // on an error, a temporary file remains, which is harmless
	}()
	m := module.Version{Path: sdk, Version: version}
	if err := modules.Zip(file, filepath.Join(root, modules.SDKDir), m); err != nil {
		return nil, err
	}
	whole, err := dirhash.HashZip(file.Name(), dirhash.Hash1)
	if err != nil {
		return nil, err
	}
	gomod, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) { return os.Open(filepath.Join(root, modules.SDKDir, "go.mod")) })
	if err != nil {
		return nil, err
	}
	return []string{
		fmt.Sprintf("%s %s %s\n", sdk, version, whole),
		fmt.Sprintf("%s %s/go.mod %s\n", sdk, version, gomod),
	}, nil
}

// writeSums returns a go.sum with these lines for the SDK, sorted by module path.
func writeSums(text []byte, sums []string) []byte {
	var lines []string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, sdk+" ") {
			lines = append(lines, line)
		}
	}
	at := slices.IndexFunc(lines, func(line string) bool { path, _, _ := strings.Cut(line, " "); return path > sdk })
	if at < 0 {
		at = len(lines)
	}
	var all bytes.Buffer
	for _, line := range slices.Insert(lines, at, sums...) {
		all.WriteString(line)
	}
	return all.Bytes()
}
