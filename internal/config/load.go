package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// MaxSize is the size in octets beyond which a file is refused unread.
const MaxSize = 16 << 20

// Load reads the file at path into a T, which is a struct. Relative Path values are taken from the file's directory.
// Where the file's content is at fault, the error is an *Error with every fault found; then T is the zero value.
func Load[T any](path string) (T, error) {
	var zero T
	file, err := os.Open(path)
	if err != nil {
		return zero, fmt.Errorf("configuration: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(file, MaxSize+1))
	if err := errors.Join(err, file.Close()); err != nil {
		return zero, fmt.Errorf("configuration %s: %w", path, err)
	}
	if len(data) > MaxSize {
		return zero, fmt.Errorf("configuration %s: larger than %d octets", path, MaxSize)
	}
	return Parse[T](path, data)
}

// Parse is Load for content that was read already; file is its path, for messages and relative paths.
func Parse[T any](file string, data []byte) (T, error) {
	var value, zero T
	directory, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return zero, fmt.Errorf("configuration %s: %w", file, err)
	}
	d := decoder{directory: directory, places: map[string]place{}}
	if root, ok := d.parse(data); ok {
		d.root(root, &value)
	}
	if len(d.faults) > 0 {
		return zero, newError(file, bytes.Split(data, []byte("\n")), d.faults)
	}
	return value, nil
}
