// Package logchunk encodes log lines for Postgres. A chunk holds consecutive lines of one attempt as JSON objects {"n",
// "at", "level", "text"}, one per line, compressed with zstd. The attempt is stored in the row, not in the chunk.
package logchunk

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/belfryhq/belfry/internal/domain"
)

// maxDecodedBytes bounds the decompressed size of a chunk. A chunk comes from one message of at most 500 lines of 16
// KiB, so a chunk written by Encode never reaches the bound.
const maxDecodedBytes = 64 << 20

type line struct {
	N     int64          `json:"n"`
	At    domain.Instant `json:"at"`
	Level string         `json:"level"`
	Text  string         `json:"text"`
}

// The coders are created once because each holds tables. EncodeAll and DecodeAll keep no state between calls and are
// safe for concurrent use.
var (
	encoder = sync.OnceValue(func() *zstd.Encoder {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
		if err != nil {
			panic(err) // only if the options are invalid
		}
		return e
	})
	decoder = sync.OnceValue(func() *zstd.Decoder {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxDecodedBytes))
		if err != nil {
			panic(err)
		}
		return d
	})
)

// Encode encodes the lines as a chunk, without their attempt.
func Encode(lines []domain.LogLine) []byte {
	var plain bytes.Buffer
	enc := json.NewEncoder(&plain)
	enc.SetEscapeHTML(false)
	for _, l := range lines {
		if err := enc.Encode(line{l.N, l.At, l.Level, l.Text}); err != nil {
			panic(fmt.Sprintf("logchunk: encode a line: %v", err)) // a line always has a JSON encoding
		}
	}
	return encoder().EncodeAll(plain.Bytes(), nil)
}

// Decode decodes a chunk. The lines' attempt is 0. An error means that the row was damaged.
func Decode(chunk []byte) ([]domain.LogLine, error) {
	plain, err := decoder().DecodeAll(chunk, nil)
	if err != nil {
		return nil, fmt.Errorf("decompress a log chunk: %w", err)
	}
	var lines []domain.LogLine
	for dec := json.NewDecoder(bytes.NewReader(plain)); dec.More(); {
		var l line
		if err := dec.Decode(&l); err != nil {
			return nil, fmt.Errorf("decode a line of a log chunk: %w", err)
		}
		lines = append(lines, domain.LogLine{N: l.N, At: l.At, Level: l.Level, Text: l.Text})
	}
	return lines, nil
}
