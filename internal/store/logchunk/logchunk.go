// Package logchunk is the form in which log lines lie in Postgres: consecutive lines of one attempt as JSON
// objects {"n", "at", "level", "text"}, one to a line, compressed with zstd. The attempt stands in the row, not in
// the chunk.
package logchunk

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/belfryhq/belfry/internal/domain"
)

// maxDecodedBytes bounds what a chunk may unfold to. A chunk comes from one message of at most 500 lines of
// 16 KiB, so it is never reached by what Encode wrote.
const maxDecodedBytes = 64 << 20

type line struct {
	N     int64          `json:"n"`
	At    domain.Instant `json:"at"`
	Level string         `json:"level"`
	Text  string         `json:"text"`
}

// The coders are made once because each holds tables; EncodeAll and DecodeAll keep no state between calls and
// may be called by many goroutines.
var (
	encoder = sync.OnceValue(func() *zstd.Encoder {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
		if err != nil {
			panic(err) // only for faulty options
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

// Encode writes the lines as a chunk. Their attempt is left out.
func Encode(lines []domain.LogLine) []byte {
	var plain bytes.Buffer
	enc := json.NewEncoder(&plain)
	enc.SetEscapeHTML(false)
	for _, l := range lines {
		if err := enc.Encode(line{l.N, l.At, l.Level, l.Text}); err != nil {
			panic(fmt.Sprintf("logchunk: encode a line: %v", err)) // a line always has a JSON form
		}
	}
	return encoder().EncodeAll(plain.Bytes(), nil)
}

// Decode reads a chunk. The lines' attempt is 0. An error means that the row was damaged.
func Decode(chunk []byte) ([]domain.LogLine, error) {
	plain, err := decoder().DecodeAll(chunk, nil)
	if err != nil {
		return nil, fmt.Errorf("unfold a log chunk: %w", err)
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
