package config

import (
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
)

// FileSuffix makes the name of a second environment variable of a confidential setting. The variable holds the path of a file that
// contains the value. So container platforms and service managers can hand over a secret without showing it in the environment.
const FileSuffix = "_FILE"

// maxFile bounds the file of a setting.
const maxFile = 64 << 10

// Confidential reports whether settings of this type can contain secrets. Each of them can be read from a file.
func Confidential(t reflect.Type) bool {
	return t == reflect.TypeFor[Secret]() || t == reflect.TypeFor[URL]()
}

// FromFile returns the content of the file that the environment names for a confidential setting, whose own variable is env. It
// removes one newline at the end. found is false if the environment names no file. Errors name the variable and the file, and
// never the value.
func FromFile(env string, lookup func(string) (string, bool)) (value string, found bool, err error) {
	name := env + FileSuffix
	path, _ := lookup(name)
	if path == "" {
		return "", false, nil
	}
	if direct, _ := lookup(env); direct != "" {
		return "", false, fmt.Errorf("%s and %s are both set; set only one of them", env, name)
	}
	value, err = readValue(path)
	if err != nil {
		return "", false, fmt.Errorf("read %s: %w", name, err)
	}
	return value, true, nil
}

func readValue(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return "", err
	}
	value := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	switch {
	case len(data) > maxFile:
		return "", fmt.Errorf("%s is larger than %d KiB", path, maxFile>>10)
	case value == "":
		return "", fmt.Errorf("%s is empty", path)
	case strings.ContainsAny(value, "\n\x00"):
		return "", fmt.Errorf("%s has more than one line; it must contain only the value", path)
	}
	return value, nil
}
