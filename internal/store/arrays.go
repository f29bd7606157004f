package store

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfryhq/belfry/internal/domain"
)

// arrayCodec encodes a []T without reflection on each element. Hot statements have thousands of elements. Other slices are encoded as before.
type arrayCodec[T any] struct {
	*pgtype.ArrayCodec
	element uint32                          // the type of the elements
	append  func(to []byte, value T) []byte // appends the length of a value, then the value
}

// registerArrays registers arrayCodecs for the types of hot statements.
func registerArrays(m *pgtype.Map) {
	registerArray(m, pgtype.UUIDArrayOID, pgtype.UUIDOID, func(to []byte, id domain.RunID) []byte { return append(column(to, len(id)), id[:]...) })
	registerArray(m, pgtype.TextArrayOID, pgtype.TextOID, func(to []byte, s string) []byte { return append(column(to, len(s)), s...) })
	registerArray(m, pgtype.Int8ArrayOID, pgtype.Int8OID, func(to []byte, n int64) []byte { return binary.BigEndian.AppendUint64(column(to, 8), uint64(n)) })
	registerArray(m, pgtype.Int4ArrayOID, pgtype.Int4OID, func(to []byte, n int32) []byte { return binary.BigEndian.AppendUint32(column(to, 4), uint32(n)) })
	registerArray(m, pgtype.TimestamptzArrayOID, pgtype.TimestamptzOID, appendTime)
	registerArray(m, pgtype.BoolArrayOID, pgtype.BoolOID, appendBool)
	registerArray(m, pgtype.ByteaArrayOID, pgtype.ByteaOID, appendBytes)
}

func registerArray[T any](m *pgtype.Map, array, element uint32, add func([]byte, T) []byte) {
	if t, known := m.TypeForOID(array); known {
		if c, ok := t.Codec.(*pgtype.ArrayCodec); ok {
			m.RegisterType(&pgtype.Type{Name: t.Name, OID: array, Codec: arrayCodec[T]{c, element, add}})
		}
	}
}

// appendTime appends an instant in microseconds.
func appendTime(to []byte, at time.Time) []byte {
	return binary.BigEndian.AppendUint64(column(to, 8), uint64(at.UnixMicro()-postgresEpoch))
}

func appendBool(to []byte, is bool) []byte {
	if is {
		return append(column(to, 1), 1)
	}
	return append(column(to, 1), 0)
}

// appendBytes appends bytes; nil is NULL.
func appendBytes(to, value []byte) []byte {
	if value == nil {
		return column(to, -1)
	}
	return append(column(to, len(value)), value...)
}

// PlanEncode implements pgtype.Codec.
func (c arrayCodec[T]) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.([]T); ok && format == pgtype.BinaryFormatCode {
		return c
	}
	return c.ArrayCodec.PlanEncode(m, oid, format, value)
}

// paramsPerRun is about the size of a hot statement's parameters for each run. The driver starts each statement with a small buffer and would otherwise grow
// and copy it about ten times. The ids of the runs are the first parameter.
const paramsPerRun = 256

// Encode implements pgtype.EncodePlan.
func (c arrayCodec[T]) Encode(value any, to []byte) ([]byte, error) {
	values, _ := value.([]T)
	if values == nil {
		return nil, nil
	}
	if c.element == pgtype.UUIDOID {
		to = slices.Grow(to, 64+len(values)*paramsPerRun)
	}
	const dimensions, nulls, first = 1, 0, 1 // Postgres does not need to know whether there are NULLs
	for _, v := range []uint32{dimensions, nulls, c.element, uint32(len(values)), first} {
		to = binary.BigEndian.AppendUint32(to, v)
	}
	for i := range values {
		to = c.append(to, values[i])
	}
	return to, nil
}
