package store

import (
	"bytes"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfryhq/belfry/internal/domain"
)

// Arrays are encoded as the driver encodes them. Only the flag that an array has NULLs, which Postgres does not read, may differ.
func TestArraysAreEncodedAsByTheDriver(t *testing.T) {
	t.Parallel()
	ours, drivers := pgtype.NewMap(), pgtype.NewMap()
	registerTypes(ours)
	at := time.Date(2026, 2, 28, 1, 2, 3, 456_789_012, time.FixedZone("", 3600))
	id := domain.NewRunID(at)
	for _, c := range []struct {
		oid           uint32
		value, driver any // driver is the value for the driver, if it has another type
	}{
		{pgtype.UUIDArrayOID, []domain.RunID{id, {}}, [][16]byte{id, {}}},
		{pgtype.UUIDArrayOID, []domain.RunID{}, [][16]byte{}},
		{pgtype.UUIDArrayOID, []domain.RunID(nil), [][16]byte(nil)},
		{pgtype.TextArrayOID, []string{"", "a", "ü 日志\\\""}, nil},
		{pgtype.Int8ArrayOID, []int64{0, 1, -1, 1 << 62, -1 << 63}, nil},
		{pgtype.Int4ArrayOID, []int32{0, 1, -1, 1<<31 - 1}, nil},
		{pgtype.Int4ArrayOID, []int{0, 1, -1}, nil}, // as before
		{pgtype.TimestamptzArrayOID, []time.Time{at, {}, time.Unix(0, 0), time.Unix(-1, 999), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}, nil},
		{pgtype.BoolArrayOID, []bool{true, false}, nil},
		{pgtype.ByteaArrayOID, [][]byte{{}, nil, {0, 255}}, nil},
		{pgtype.ByteaArrayOID, [][]byte{}, nil},
	} {
		got, err := ours.Encode(c.oid, pgtype.BinaryFormatCode, c.value, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.driver == nil {
			c.driver = c.value
		}
		want, err := drivers.Encode(c.oid, pgtype.BinaryFormatCode, c.driver, nil)
		if err != nil {
			t.Fatal(err)
		}
		if (got == nil) != (want == nil) || !bytes.Equal(withoutFlag(got), withoutFlag(want)) {
			t.Errorf("%T %v:\n%x, want\n%x", c.value, c.value, got, want)
		}
	}
}

// withoutFlag returns an array without the flag that it has NULLs.
func withoutFlag(array []byte) []byte {
	if len(array) < 8 {
		return array
	}
	return append(bytes.Clone(array[:4]), array[8:]...)
}
