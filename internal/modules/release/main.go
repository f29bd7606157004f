// Command release prepares a release of all modules. It writes the version of the SDK and of its module for OpenTelemetry into go.work and into
// the go.mod files that require them, and their hashes into the go.sum files. Run it in the root of a clean tree:
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
	fmt.Printf("commit go.mod, go.work and go.sum of the root and of %s, then tag that commit %[2]s, %[3]s/%[2]s and %[1]s/%[2]s\n",
		modules.OTelDir, os.Args[1], modules.SDKDir)
}

// prepare updates go.work, go.mod and go.sum below root, and then go.mod and go.sum of the root, which contain the hash of the former.
func prepare(root, version string) error {
	dir := filepath.Join(root, modules.OTelDir)
	sums, err := hashes(root, modules.SDKDir, sdk, version)
	if err != nil {
		return err
	}
	err = errors.Join(
		edit(filepath.Join(dir, "go.mod"), func(text []byte) ([]byte, error) { return require(text, sdk, version) }),
		edit(filepath.Join(dir, "go.sum"), func(text []byte) ([]byte, error) { return writeSums(text, sdk, sums), nil }),
	)
	if err != nil {
		return err
	}
	otelSums, err := hashes(root, modules.OTelDir, modules.OTel, version)
	if err != nil {
		return err
	}
	return errors.Join(
		edit(filepath.Join(root, "go.mod"), func(text []byte) ([]byte, error) { return require(text, sdk, version) }),
		edit(filepath.Join(root, "go.mod"), func(text []byte) ([]byte, error) { return require(text, modules.OTel, version) }),
		edit(filepath.Join(root, "go.work"), func(text []byte) ([]byte, error) { return replace(text, version) }),
		edit(filepath.Join(root, "go.sum"), func(text []byte) ([]byte, error) {
			return writeSums(writeSums(text, sdk, sums), modules.OTel, otelSums), nil
		}),
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

// require returns a go.mod that requires a module in this version, if the file requires the module at all.
func require(text []byte, path, version string) ([]byte, error) {
	f, err := modfile.Parse("go.mod", text, nil)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(f.Require, func(r *modfile.Require) bool { return r.Mod.Path == path }) {
		return text, nil
	}
	if err := f.AddRequire(path, version); err != nil {
		return nil, err
	}
	return f.Format()
}

// replace returns a go.work that replaces this version of our modules, and no other.
func replace(text []byte, version string) ([]byte, error) {
	f, err := modfile.ParseWork("go.work", text, nil)
	if err != nil {
		return nil, err
	}
	for _, r := range f.Replace {
		if r.Old.Path == sdk || r.Old.Path == modules.OTel { // edit it in place, so that its comment stays
			r.Syntax.Token[slices.Index(r.Syntax.Token, r.Old.Version)] = version
		}
	}
	return modfile.Format(f.Syntax), nil
}

// hashes returns the lines of go.sum for the module in a directory of the working tree at root.
func hashes(root, dir, path, version string) ([]string, error) {
	file, err := os.CreateTemp("", "belfry-sdk-*.zip")
	if err != nil {
		return nil, err
	}
	defer func() {
		file.Close()
		_ = os.Remove(file.Name()) // on an error, a temporary file remains, which is harmless
	}()
	m := module.Version{Path: path, Version: version}
	if err := modules.Zip(file, filepath.Join(root, dir), m); err != nil {
		return nil, err
	}
	whole, err := dirhash.HashZip(file.Name(), dirhash.Hash1)
	if err != nil {
		return nil, err
	}
	gomod, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) { return os.Open(filepath.Join(root, dir, "go.mod")) })
	if err != nil {
		return nil, err
	}
	return []string{
		fmt.Sprintf("%s %s %s\n", path, version, whole),
		fmt.Sprintf("%s %s/go.mod %s\n", path, version, gomod),
	}, nil
}

// writeSums returns a go.sum with these lines for a module, sorted by module path.
func writeSums(text []byte, path string, sums []string) []byte {
	var lines []string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, path+" ") {
			lines = append(lines, line)
		}
	}
	at := slices.IndexFunc(lines, func(line string) bool { other, _, _ := strings.Cut(line, " "); return other > path })
	if at < 0 {
		at = len(lines)
	}
	var all bytes.Buffer
	for _, line := range slices.Insert(lines, at, sums...) {
		all.WriteString(line)
	}
	return all.Bytes()
}
